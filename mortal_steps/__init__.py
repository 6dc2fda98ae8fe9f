"""Everything that runs inside a worker. Never imports prefect, flows or tasks."""

__version__ = "0.1.0"
