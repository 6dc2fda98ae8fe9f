"""Models: those of the hub by their commit, those in a local folder by their files."""
