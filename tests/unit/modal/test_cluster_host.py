"""The inside of a container that is one of an actor's several."""

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.errors import ModelError
from mortal_steps.places.modal import CLIENT_PATH
from mortal_steps.places.modal.inside.cluster import REQUESTS_PORT, ClusterHost
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system.frames import send_frame
from mortal_steps.system.links import reach
from mortal_steps.types import FileRef

REQUEST = SimpleNamespace(settings=FileRef(path="settings.json", sha256="0" * 64), lease=1)


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path, monkeypatch):
    """A container settles in a folder of its own; the tests after these go on in theirs."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", CLIENT_PATH):
        monkeypatch.setenv(name, "")


class OfTheHub(ClusterHost):
    """One of two containers of a run of a model on the hub, which cannot be reached from here."""

    def __init__(self, runs, number):
        there = SimpleNamespace(reload=lambda: None, commit=lambda: None)
        options = {"runs_dir": runs, "run_id": "run", "volume": there, "volume_name": "runs"}
        super().__init__(addresses=("127.0.0.1", "127.0.0.1"), number=number, **options)

    def _specs(self, request):
        config = RunConfig(model={"name_or_path": "nobody/nothing"})
        kwargs = {"plan": Plan(config).actor, "model_path": "nobody/nothing"}
        return {"actor": WorkerSpec(factory="mortal_steps.policy.actor:Actor", kwargs=kwargs)}


def test_each_container_gets_the_model_before_its_ranks_begin(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = OfTheHub(tmp_path, 1)._prepared(REQUEST)
    assert isinstance(found, ModelError)
    assert "nobody/nothing" in str(found)


def come_and_go():
    with reach("127.0.0.1", REQUESTS_PORT, REQUEST.settings.sha256) as connection:
        send_frame(connection, None)


def test_the_first_ends_with_one_that_was_lost_once_it_has_answered(tmp_path, monkeypatch):
    first = OfTheHub(tmp_path, 0)
    other = threading.Thread(target=come_and_go)
    other.start()
    with first._everybody(first._server, REQUEST) as error:
        other.join()
        assert error is None
    monkeypatch.setattr(os, "_exit", lambda code: sys.exit(code))
    with pytest.raises(SystemExit), first._everybody(first._server, REQUEST):
        pass
