"""Everything that runs inside a worker. Never imports prefect, flows or tasks."""
