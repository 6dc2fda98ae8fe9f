"""What is wrong or missing on Modal: a message that says so, before a GPU starts."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from mortal_steps.errors import ComputeError, ConfigError, StoreError
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.base import place_of
from mortal_steps.places.modal.deployed import check_deployed, check_pickles
from mortal_steps.places.modal.files.mirror import Mirror
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.release import Release, this_release
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.runs.identity import write_identity
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support import bare_flow
from tests.support.modal.project import ON_MODAL, project
from tests.support.paths import ROOT
from tests.support.refused import refused


@pytest.fixture(autouse=True)
def no_gpu_starts(plane):
    """What every refusal here has in common."""
    before = len([event for event in plane.events("container_started") if event["gpu"]])
    yield
    assert len([event for event in plane.events("container_started") if event["gpu"]]) == before


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("app=nowhere", "'nowhere'.*`mortal deploy`"),
        ("volume=nowhere", "'nowhere' not found.*`mortal deploy`"),
        ("secrets=['hub-token']", "'hub-token', which Modal does not have.*modal secret create"),
    ],
)
def test_what_is_not_there_is_named(plane, tmp_path, setting, told):
    config = project(tmp_path, "refused", *ON_MODAL, f"compute.modal.{setting}")
    with pytest.raises(ComputeError, match=told):
        asyncio.run(check_deployed(Plan(config).place))


def test_a_machine_without_a_token_is_told_so(plane, tmp_path):
    env = {k: v for k, v in {**os.environ, **plane.env}.items() if "TOKEN" not in k}
    for command, code, told in [
        (["mortal", "doctor", "--modal"], 1, "account"),
        (["benchmarks.modal_smoke"], 0, "skipped: "),
    ]:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            env={**env, "HOME": str(tmp_path)},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code
        assert told in done.stdout and "`modal setup`" in done.stdout


def test_other_code_than_here_is_refused(plane, tmp_path, monkeypatch):
    other = Release(mortal="9", sources="0" * 64, modal="1", python="3.11")
    monkeypatch.setattr("mortal_steps.places.modal.deployed.this_release", lambda: other)
    with refused(ComputeError, "deployed app", "this machine"):
        asyncio.run(check_deployed(Plan(project(tmp_path, "refused", *ON_MODAL)).place))
    assert this_release().runs_with(this_release())


def test_objects_of_another_python_are_refused_before_the_run_begins(plane, tmp_path, monkeypatch):
    term = "{name='own', type='pickled', object='" + "0" * 64 + "', file='own.pickle'}"
    rewards = ["rewards.functions=[]", f"rewards.terms=[{term}]", "compute.modal.rewards=modal"]
    config = project(tmp_path, "refused", *ON_MODAL, *rewards)
    asyncio.run(check_pickles(Plan(config).place))
    newer = replace(this_release(), python="3.99")
    monkeypatch.setattr("mortal_steps.places.modal.deployed.this_release", lambda: newer)
    for check in (
        check_pickles(Plan(config).place),
        check_deployed(Plan(config).place),
    ):
        with pytest.raises(ConfigError, match=r"bytecode of Python 3\.99, and .* have Python 3\.1"):
            asyncio.run(check)
    asyncio.run(check_deployed(Plan(project(tmp_path / "named", "refused", *ON_MODAL)).place))


def test_a_full_volume_stops_the_run(plane, tmp_path):
    plane.fill_volume("mortal-runs")
    try:
        with (
            bare_flow.bare_in(tmp_path),
            refused(StoreError, "full", "`modal volume rm`"),
        ):
            bare_flow.go_on(project(tmp_path, "full", *ON_MODAL))
    finally:
        plane.empty_volume("mortal-runs")


def test_another_run_of_the_same_id_is_not_written_over(plane, tmp_path):
    problems = [Problem(id="p", prompt="a")]
    stores = [RunStore(tmp_path / machine / "runs/twice") for machine in ("one", "other")]
    for store in stores:
        config = project(store.root.parents[1], "twice", *ON_MODAL)
        write_identity(store, config, problems, [])
    asyncio.run(Mirror(RunsVolume("mortal-runs"), stores[0]).begin())
    with refused(StoreError, "'twice'"):
        open_run(config)


def test_a_gpu_that_modal_does_not_rent_is_named(tmp_path):
    project(tmp_path, "any")
    with refused(ConfigError, "'A1000'", "mean A100"):
        load_config(tmp_path / "chaos.toml", ["compute.modal.actor=A1000"])
    with refused(ConfigError, "1 to 8"):
        load_config(tmp_path / "chaos.toml", ["compute.modal.rollout=H100:9"])
    with refused(ConfigError, "1 to 4"):
        load_config(tmp_path / "chaos.toml", ["compute.modal.rollout=A10G:5"])


def test_a_reward_function_that_no_container_can_have_is_named(plane, tmp_path, monkeypatch):
    outside = ["rewards.functions=['../rewards.py:lottery']", "compute.modal.rewards=modal"]
    config = project(tmp_path, "outside", *ON_MODAL, *outside)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(ConfigError, match=r"'\.\./rewards.py:lottery' is in .* start the run from"):
        place_of(Plan(config).place).check_access(print)
