"""Fixtures of the scenarios."""

from tests.support.end_to_end import mortal, prefect, project, server
from tests.support.rollout.fixtures import model_a

__all__ = ["model_a", "mortal", "prefect", "project", "server"]
