"""Deploying, versions, `modal run`, images and their interpreters."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import modal
import pytest

from .conftest import MODAL
from .lint import lint
from .plane import ModalPlane, client_environment

APP = """
import os, sys, time, modal

app = modal.App("versioned")
image = modal.Image.debian_slim().pip_install("numpy", "einops==0.8").env({"SAMPLE_ROLE": "other"})

@app.function(gpu="A10G")
def version():
    return VERSION

@app.function(timeout=60, image=image)
def look(path):
    return sys.executable, os.listdir(path)

@app.function(timeout=60)
def sleep(seconds):
    time.sleep(seconds)
    return "slept"

@app.local_entrypoint()
def main(seconds: float):
    print(sleep.remote(seconds))
"""

FREQUENT_HEARTBEATS = {"MODAL_HEARTBEAT_INTERVAL": "0.3"}
"""Of `modal run`, whose client counts as gone after --heartbeat-timeout."""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """An interpreter without modal."""
    folder = tmp_path_factory.mktemp("other")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "file").touch()
    return folder


@pytest.fixture(scope="module")
def plane(tmp_path_factory, other_python, hidden):
    arguments = ["--python", f"SAMPLE_ROLE=other={other_python}", "--hide", str(hidden)]
    state = tmp_path_factory.mktemp("plane")
    with (
        ModalPlane(state, *arguments, "--heartbeat-timeout", "4") as plane,
        client_environment(plane),
    ):
        yield plane


def write_app(folder: Path, version: int) -> Path:
    path = folder / "versioned_app.py"
    path.write_text(APP.replace("VERSION", str(version)))
    return path


def test_a_lookup_is_pinned_to_a_version_or_follows_the_live_one(plane, tmp_path):
    def version(**pinned):
        return modal.Function.from_name("versioned", "version", **pinned).remote()

    for number in (1, 2):
        write_app(tmp_path, number)
        plane.run(MODAL, "deploy", "-m", "versioned_app", cwd=tmp_path)
        assert version() == number
    assert version(version=1) == 1
    assert version(version=2) == 2
    with pytest.raises(modal.exception.NotFoundError, match="Version 3"):
        version(version=3)
    redeployed = plane.wait_for("container_ended", function="version")
    assert redeployed["why"] == "redeployed"


def test_an_image_is_run_by_the_interpreter_that_stands_in_for_it(plane, other_python, hidden):
    """One without modal gets it from the plane, and what is hidden is not seen."""
    look = modal.Function.from_name("versioned", "look")
    assert look.remote(str(hidden)) == (str(other_python), [])


def test_lint_names_what_would_cost_or_break(plane):
    problems = lint(plane.state())
    assert len(problems) == 3
    assert "version: unknown GPU 'A10G'" in problems
    assert "version: timeout is the default of 300 s; name another" in problems
    assert any("numpy is not pinned" in problem for problem in problems)


def test_modal_run_ends_with_its_app(plane, tmp_path):
    output = plane.run(
        MODAL, "run", str(write_app(tmp_path, 1)), "--seconds", "0", env=FREQUENT_HEARTBEATS
    )
    assert "slept" in output
    deployed, run = plane.state()["apps"]
    assert (deployed["stopped"], run["stopped"]) == (False, True)


def test_a_detached_run_outlives_its_client_and_another_does_not(plane, tmp_path):
    path = write_app(tmp_path, 1)
    calls = {}
    for detach in (["--detach"], []):
        seen = len(plane.events("input_started"))
        client = subprocess.Popen(
            [MODAL, "run", *detach, str(path), "--seconds", "6"],
            env={**os.environ, **plane.env, **FREQUENT_HEARTBEATS},
            stdout=subprocess.DEVNULL,
        )
        calls[bool(detach)] = plane.wait_for("input_started", count=seen + 1)["call"]
        client.send_signal(signal.SIGKILL)
        client.wait()
    statuses = {
        detached: plane.wait_for("input_finished", call=call)["status"]
        for detached, call in calls.items()
    }
    assert statuses == {True: "SUCCESS", False: "TERMINATED"}
    plane.wait_until(lambda: not plane.tasks("sleep"), what="no container of the runs")
