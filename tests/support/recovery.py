"""A project whose lost runs the server's automations bring back."""

import pytest

from mortal.server.recovery import ALL
from tests.support.command import Mortal
from tests.support.project import write_project

ATTEMPTS = 3
SILENCE_S = 90  # heartbeats come every 30 s, or later from a slow machine


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("recovery")
    write_project(folder)
    return Mortal(folder, server.api_url)


@pytest.fixture(scope="module")
def automations(mortal, prefect):
    """What `mortal automate` says; times as short as may be, three starts of a flow run."""
    times = ("--silence-s", str(SILENCE_S), "--pause-s", "10")
    mortal("automate", "--attempts", "2")
    yield mortal("automate", *times, "--attempts", str(ATTEMPTS))
    assert mortal("automate", "--remove").count("removed") == len(ALL)
