"""What it takes until rollout workers sample with the next version of the weights."""
