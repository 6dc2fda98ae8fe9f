"""Commands that messages propose work as they are printed, wherever the runs are."""

import re
from pathlib import Path

import pytest

import mortal
import mortal_flows
import mortal_steps
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import DataError, StoreError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.samples import trained_on
from mortal_steps.report.status import status_of
from mortal_steps.runs.argument import RUNS_DIR, run_argument
from mortal_steps.runs.run import Run
from mortal_steps.serving.models import trained_model
from mortal_steps.store import RunStore
from tests.support.refused import refused
from tests.support.run_info import run_info

BY_ID_ALONE = re.compile(r"`mortal (?:[a-z]+-)*[a-z]+ \{(?:\w+\.)*run_id\}(?! --volume)")
"""Such as `mortal show {run_id} --json`, which finds no run in another folder than `runs`."""
PRINTED_ELSEWHERE = "on_disk/recovery.py"
"""Its message is an actor's, in whose container the folder may have another name."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that has stopped, in another folder than the usual one."""
    monkeypatch.delenv(RUNS_DIR, raising=False)
    config = RunConfig(rewards=RewardsConfig(functions=("m:a",)))
    folder = tmp_path / "elsewhere" / "r"
    folder.mkdir(parents=True)
    run = Run(RunStore(folder), config, run_info(tmp_path))
    run.append("metrics.jsonl", {"step": 1, "reward": 0.5})
    run.update(step=1, status="stopped")
    return run


def test_they_name_the_folder_of_a_run_that_is_not_in_the_usual_one(run, monkeypatch):
    there = f"r --runs-dir {run.store.root.parent}"
    assert status_of(run).waits_for == f"mortal resume {there}"
    assert status_of(run, "mine").waits_for == "mortal resume r --volume mine"
    with refused(StoreError, f"`mortal resume {there}`"):
        trained_model(run)
    with refused(DataError, f"`mortal fetch {there} --all`"):
        trained_on(run)
    assert run_argument(run.store.root.parent / ".recipes" / "r") == there
    monkeypatch.setenv(RUNS_DIR, str(run.store.root.parent))
    assert status_of(run).waits_for == "mortal resume r"


def test_no_message_names_a_run_by_its_id_alone():
    for package in (mortal, mortal_flows, mortal_steps):
        for file in Path(package.__path__[0]).rglob("*.py"):
            if not file.as_posix().endswith(PRINTED_ELSEWHERE):
                assert BY_ID_ALONE.findall(file.read_text()) == [], file
