"""What users build rewards from."""
