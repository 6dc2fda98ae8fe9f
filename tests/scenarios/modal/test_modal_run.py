"""`modal run` on the app's entrypoints: a run by its flags, and what can be tried out there."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.release import HUB_VOLUME
from mortal_steps.plan.loader import dump_toml
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import find_run
from tests.support import bare_flow
from tests.support.modal.detached import HERE, SMALL
from tests.support.modal.fire import NODE
from tests.support.modal.project import ON_MODAL, assert_same, project
from tests.support.paths import ROOT

FLAGS = ("--max-steps", "2", "--batch-size", "4", "--simple-mode", "--actor-gpu", "H100")
THE_SAME = ("training.max_steps=2", "training.batch_size=4", "rollout.engine=transformers")
MODEL, COMMIT = "org/model", "0" * 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with a model and a configuration file."""
    folder = tmp_path_factory.mktemp("project")
    build_model(folder / "start", SMALL, seed=3)
    config = project(folder, "staying", *HERE, *ON_MODAL)
    config = config.model_copy(update={"run_id": None, "runs_dir": "runs"})
    (folder / "mine.toml").write_text(dump_toml(config))
    return folder


@pytest.fixture(scope="module")
def modal_run(plane, folder):
    """`modal run` in the project; its exit code and output."""

    def run(*arguments, **environment):
        paths = {"PYTHONPATH": str(ROOT), "PREFECT_API_URL": "", "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "modal", "run", *arguments],
            cwd=folder,
            env={**os.environ, **plane.env, **paths, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def trained(plane, folder, modal_run):
    """A run begun by its flags in a checkout, brought here."""
    main = (
        "--detach",
        "-m",
        "deployments.modal_app::main",
        "--config",
        "mine.toml",
        "--run-id",
        "mine",
    )
    before = len(plane.events("container_started", function=NODE))
    done = modal_run(*main, *FLAGS)
    assert done.returncode == 0, done.stdout
    command = [sys.executable, "-m", "mortal", "fetch", "mine", "--all"]
    plane.run(*command, cwd=folder)
    [began] = plane.events("container_started", function=NODE)[before:]
    run = find_run(folder / "runs", "mine")
    return SimpleNamespace(run=run, output=done.stdout, gpu=began["gpu"])


def test_the_flags_are_those_of_the_run(plane, folder, trained):
    assert "mine completed; `mortal fetch mine" in trained.output
    with bare_flow.bare_in(folder):
        assert_same(trained.run, bare_flow.go_on(project(folder, "staying", *HERE, *THE_SAME)))
    assert trained.gpu == "H100"


def test_the_checkpoints_are_listed(trained, modal_run):
    listed = modal_run("-m", "mortal_deployments.modal_app::list_checkpoints_fn").stdout
    assert re.search(r"^mine +2 +best$", listed, re.MULTILINE)


def test_an_error_is_a_message_and_no_traceback(modal_run):
    done = modal_run("-m", "deployments.modal_app::main", "--config", "nothing.toml")
    assert done.returncode == 1
    assert "error: no such configuration file: nothing.toml" in done.stdout
    assert "Traceback" not in done.stdout


def test_programs_are_scored_in_sandboxes(plane, modal_run):
    done = modal_run("-m", "mortal_deployments.modal_app::test_reward_fn")
    table = done.stdout.partition("2 completions")[2].partition("functions")[0]
    scores = [line.split()[-2] for line in table.splitlines() if line[-1:].isdigit()]
    assert scores == ["1.000", "0.000"], done.stdout
    assert plane.events("sandbox_started")


def test_a_model_of_the_hub_answers_a_prompt_until_the_cache_is_cleared(
    plane, folder, modal_run, tmp_path
):
    cached = tmp_path / "hub" / "models--org--model"
    snapshot = cached / "snapshots" / COMMIT
    shutil.copytree(folder / "start", snapshot)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    volume = RunsVolume(HUB_VOLUME)
    files = {str(path.relative_to(tmp_path)): path for path in cached.rglob("*") if path.is_file()}
    asyncio.run(volume.upload(files))
    entrypoint = ("-m", "mortal_deployments.modal_app::test_rollout_fn", "--config", "mine.toml")
    flags = ("--model", MODEL, "--prompt", "ab", "--simple-mode", "--actor-gpu", "L4")
    done = modal_run(*entrypoint, *flags, HF_HOME=str(tmp_path))
    assert "tokens/s" in done.stdout, done.stdout
    [began] = plane.events("container_started", function="sample_with_transformers")
    assert began["gpu"] == "L4"
    clear = ("-m", "mortal_deployments.modal_app::clear_cache", "--model", MODEL)
    assert "there is no terminal to ask in" in modal_run(*clear).stdout
    assert "removed mortal-hub:/hub/models--org--model" in modal_run(*clear, "--yes").stdout
    assert asyncio.run(volume.files("hub/models--org--model")) == []
