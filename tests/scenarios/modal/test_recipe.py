"""A recipe of which some stages train on Modal and the others here: each takes what others made."""

import os
import subprocess

import pytest

from mortal_steps.runs.run import find_run
from tests.support.modal.fire import ACTOR
from tests.support.modal.project import MORTAL, at
from tests.support.whole_recipe import digests, kill_recipe, record_of, wait_until, write_recipe

THERE = ("rm", "grpo")
SAME = (
    "stages.grpo.rollout.dtype=float32",
    "stages.grpo.training.gradient_accumulation_steps=2",
)
"""Defaults that depend on the GPU."""
ON_MODAL = tuple(f"stages.{name}.compute.backend=modal" for name in THERE)
JUDGED_HERE = ("stages.gate.overrides=['compute.backend=local']",)


def command(*settings):
    return (*MORTAL, "train", "words.toml", *(part for one in settings for part in ("--set", one)))


@pytest.fixture(scope="module")
def here(plane, tmp_path_factory):
    """The folder of the recipe with all stages here."""
    folder = tmp_path_factory.mktemp("here")
    write_recipe(folder)
    plane.run(*command(*SAME), **at(folder))
    return folder


def test_stages_there_have_the_bits_of_stages_here_whatever_is_killed(plane, here, tmp_path):
    write_recipe(tmp_path)
    asked = command(*SAME, *ON_MODAL, *JUDGED_HERE)
    env = {**os.environ, **plane.env, "PREFECT_API_URL": ""}
    process = subprocess.Popen(
        asked, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until(tmp_path, "grpo", 1, process)
    kill_recipe(tmp_path)
    process.communicate()
    plane.run(*asked, **at(tmp_path))
    assert digests(tmp_path) == digests(here)
    on_modal = {event["task"] for event in plane.events("container_started", function=ACTOR)}
    assert len(on_modal) >= len(THERE)
    for name in THERE:
        run = find_run(tmp_path / "runs", record_of(tmp_path).stages[name].job_id)
        assert run.config.compute.backend == "modal"
