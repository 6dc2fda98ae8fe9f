"""Pictures of Prefect's pages after a scheduled run, taken in a browser."""
