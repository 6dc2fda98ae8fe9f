"""Fixtures of the scenarios."""

import pytest

from tests.support.chaos.server import KillableServer
from tests.support.end_to_end import mortal, prefect, project, server
from tests.support.rollout.fixtures import model_a

__all__ = ["model_a", "mortal", "prefect", "project", "server"]


@pytest.fixture(scope="module")
def killable(tmp_path_factory):
    with KillableServer(tmp_path_factory.mktemp("server")) as server:
        yield server
