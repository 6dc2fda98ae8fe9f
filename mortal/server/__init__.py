"""The Prefect server that runs report to: the user's own, or one that `mortal` starts."""
