"""End-to-end runs."""

from tests.support.end_to_end import mortal, prefect, project, server

__all__ = ["mortal", "prefect", "project", "server"]
