"""A run whose actor hangs is interrupted twice: one stop in order would wait for ever."""

import signal
from types import SimpleNamespace

import psutil
import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project
from tests.support.rewards.processes import assert_ends
from tests.support.undisturbed import begun


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("interrupted")
    write_project(folder)
    begun(folder, ["training.max_steps=1000"], "busy")
    return Mortal(folder, server.api_url)


@pytest.fixture(scope="module")
def impatient(mortal):
    """How the process ended, and its children until then."""
    process = mortal.start("resume", "busy")
    wait_for_step(mortal, "busy", 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    logs = {file.path: child for child in children for file in child.open_files()}
    logs[str(mortal.folder / "runs/busy/logs/actor-0.log")].suspend()
    process.send_signal(signal.SIGINT)
    while "a second one stops at once" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return SimpleNamespace(output=output, code=process.returncode, children=children)


def test_a_second_ctrl_c_ends_at_once(mortal, impatient):
    assert impatient.code == 130, impatient.output
    assert "mortal resume busy" in impatient.output
    assert len(impatient.children) >= 4, "the reward functions have a process of their own"
    for child in impatient.children:
        assert_ends(child.pid)
    assert mortal.show("busy")["status"] == "stopped"


def test_what_was_trained_until_a_second_ctrl_c_is_whole(mortal, impatient):
    checked = mortal("verify", "busy")
    step = find_run(mortal.folder / "runs", "busy").manifest.step
    assert f"the chain of {step} steps is whole" in checked
