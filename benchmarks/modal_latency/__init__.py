"""What a step costs on Modal in waiting: requests, reloads and commits."""
