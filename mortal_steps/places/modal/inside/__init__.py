"""What runs in the containers."""
