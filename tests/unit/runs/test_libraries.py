"""A run that is continued with other versions of the libraries that compute its numbers."""

import dataclasses
import sys

import pytest

from mortal_steps.orchestration.driver import _log_changed_versions
from mortal_steps.runs.run import Run, find_run
from mortal_steps.system import libraries
from mortal_steps.system.libraries import changes, computing_versions
from tests.support.begun_runs import make_run


@pytest.fixture
def begun(tmp_path):
    make_run(tmp_path, "begun")
    return find_run(tmp_path, "begun")


def test_a_run_notes_the_versions_that_it_begins_with(begun, caplog):
    assert begun.info.libraries == computing_versions()
    assert {"torch", "transformers", "trl"} <= begun.info.libraries.keys()
    _log_changed_versions(begun)
    assert not caplog.records


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ({"torch": "2.0.1"}, "torch was 2.0.1, now "),
        ({"gone": "1.0"}, "gone was 1.0, now not there"),
    ],
)
def test_what_was_upgraded_meanwhile_is_told(begun, caplog, then, told):
    info = dataclasses.replace(begun.info, libraries={**begun.info.libraries, **then})
    _log_changed_versions(Run(begun.store, None, info))
    assert told in caplog.text and "continue it in an environment" in caplog.text


def test_a_run_that_noted_none_says_nothing(begun, caplog):
    """It was begun by an earlier version."""
    _log_changed_versions(Run(begun.store, None, dataclasses.replace(begun.info, libraries=None)))
    assert not caplog.records
    now = computing_versions()
    assert changes({**now, "x": "1"}, now) == ["x was 1, now not there"]


def test_another_gpu_and_another_driver_are_told(begun, caplog, monkeypatch):
    printed = "NVIDIA H100 80GB HBM3, 580.95.05\nNVIDIA H100 80GB HBM3, 580.95.05\n"
    monkeypatch.setattr(libraries, "has_gpu", lambda: True)
    monkeypatch.setattr(libraries, "_output", lambda *command: printed)
    assert computing_versions()["GPU"] == "NVIDIA H100 80GB HBM3"
    then = {"GPU": "NVIDIA A100-SXM4-80GB", "NVIDIA driver": "570.1"}
    info = dataclasses.replace(begun.info, libraries={**begun.info.libraries, **then})
    _log_changed_versions(Run(begun.store, None, info))
    assert "GPU was NVIDIA A100-SXM4-80GB, now NVIDIA H100 80GB HBM3" in caplog.text
    assert "NVIDIA driver was 570.1, now 580.95.05" in caplog.text


def test_the_interpreter_of_rollout_workers_is_asked(monkeypatch):
    asked = []

    def output(*command):
        asked.append(command)
        return '{"vllm": "0.31.0"}'

    monkeypatch.setattr(libraries, "_output", output)
    assert computing_versions("/venv/bin/python")["vllm of rollout workers"] == "0.31.0"
    assert [command[0] for command in asked] == ["/venv/bin/python"]
    computing_versions(sys.executable)
    assert len(asked) == 1
