"""What tests of the batch source `atropos` share."""
