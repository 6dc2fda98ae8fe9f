"""Ctrl-C while the process that drives a trainer's run is only starting."""

import signal

import pytest

from mortal.trainer import owner
from mortal_steps.plan.run_config import RunConfig


def test_an_interrupt_during_its_start_is_answered(monkeypatch, tmp_path, capfd):
    """The interpreter has just been started, and handles no signal yet."""
    started = []
    wait = owner._wait

    def interrupt_and_wait(process):
        started.append(process)
        process.send_signal(signal.SIGINT)
        return wait(process)

    monkeypatch.setattr(owner, "_wait", interrupt_and_wait)
    config = RunConfig(runs_dir=str(tmp_path / "runs"), run_id="never")
    with pytest.raises(KeyboardInterrupt):
        owner.perform("train", config=config)
    assert started[0].returncode == 0
    assert "Traceback" not in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_owner_that_ends_before_it_asks_leaves_nobody(monkeypatch, capfd):
    started = []

    def end(process):
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner.pickle, "dumps", lambda request: b"")
    monkeypatch.setattr(owner, "_printing", end)
    with pytest.raises(KeyboardInterrupt):
        owner.perform("train", config=RunConfig())
    assert started[0].wait() == 0
    assert "Traceback" not in capfd.readouterr().err
