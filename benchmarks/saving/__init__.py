"""What checkpoints beside training gain, against training that waits for them."""
