"""The Prefect server that runs report to: the user's own server, or one that `mortal` starts."""
