"""Trackers that follow a run, in processes of their own that are killed."""

import asyncio
import json
import subprocess
import sys
import tomllib

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration import tracking
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.orchestration.tracking import Follower, Tracking, catch_up, with_logging
from mortal_steps.report.trackers import FOLDER
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support.docs_examples import settings, write_modules
from tests.support.tracked import (
    TRACKERS,
    begin,
    commit,
    followers,
    kill,
    read_back,
    tensorboard_steps,
    trackio_rows,
)

BROKEN = """
class Broken:
    def __init__(self, run):
        raise OSError("the network is away")
"""
HANGING = """
import time
from pathlib import Path


class Hanging:
    def __init__(self, run):
        Path("asked").touch()
        time.sleep(600)
"""
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)


async def told(follower, step):
    async with asyncio.timeout(PATIENCE_S):
        while follower.step < step:
            await asyncio.sleep(0.05)


async def test_each_step_is_there_once_after_a_kill_of_the_process_that_tells_it(tmp_path):
    run = begin(tmp_path, 6, report_to=TRACKERS)
    commit(run, 1, 2, 3)
    followers = [Follower(run, name) for name in TRACKERS]
    following = [asyncio.create_task(each.follow()) for each in followers]
    await asyncio.gather(*(told(each, 3) for each in followers))
    for name in TRACKERS:
        kill(run, name)
    await asyncio.gather(*following)
    assert all("ended by itself" in each.error for each in followers)
    commit(run, 4, 5, 6)
    again = await catch_up(run, follows=False)
    assert [(each.step, each.error) for each in again] == [(6, "")] * 3
    assert read_back(run) == {name: [0, 1, 2, 3, 4, 5, 6] for name in TRACKERS}
    assert {run_id for run_id, _ in trackio_rows(run)} == {f"tracked-{run.info.uid[:8]}"}


async def test_a_tracker_that_fails_is_told_and_what_it_lacks_is_told_at_the_end(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    run = begin(tmp_path, 6, report_to=["broken:Broken"])
    news = []
    following = Tracking(run, lambda: news.append(read_notices(run.store)[-1]))
    commit(run, 1, 2)
    async with asyncio.timeout(PATIENCE_S):
        while not news:
            await asyncio.sleep(0.05)
    await following.finish()
    assert [notice.event for notice in news] == ["mortal.tracker.failed", "mortal.tracker.behind"]
    assert "broken:Broken failed: OSError: the network is away" in news[0].text
    assert "lacks 2 of 2 steps" in news[1].text
    named = run_argument(run.store.root)
    assert news[1].advice.endswith(f"`mortal track {named} --to broken:Broken`")


async def test_a_tracker_that_hangs_is_left_behind_when_the_run_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "DRAIN_S", 2.0)
    (tmp_path / "hanging.py").write_text(HANGING)
    run = begin(tmp_path, 6, report_to=["hanging:Hanging"])
    commit(run, 1, 2)
    following = Tracking(run, lambda: None)
    async with asyncio.timeout(PATIENCE_S):
        while not (tmp_path / "asked").exists():
            await asyncio.sleep(0.05)
    await following.finish()
    (notice,) = read_notices(run.store)
    assert notice.event == "mortal.tracker.behind"
    assert notice.text.endswith("lacks 2 of 2 steps: it did not finish in time")
    assert followers(run, "hanging:Hanging") == []


async def test_two_processes_do_not_bring_a_run_to_one_tracker(tmp_path):
    run = begin(tmp_path, 6, report_to=["tensorboard"])
    commit(run, 1)
    follower = Follower(run, "tensorboard")
    following = asyncio.create_task(follower.follow())
    await told(follower, 1)
    (other,) = await catch_up(run, follows=False)
    assert "another process" in other.error and "tensorboard" in other.error
    follower.end()
    await following
    assert followers(run, "tensorboard") == []
    assert follower.error == "" and tensorboard_steps(run) == [0, 1]


def test_a_tracker_that_cannot_be_imported_is_an_error_before_a_run_is_made(tmp_path):
    (tmp_path / "mine.py").write_text("import no_such_module\n")
    run = begin(tmp_path, 6)
    config = with_logging(run, report_to=["mine:Mine"]).config
    with pytest.raises(ConfigError, match=r"mine:Mine.*No module named 'no_such_module'"):
        open_run(config.model_copy(update={"run_id": "new"}))
    assert not (tmp_path / "new").exists()


async def test_the_tracker_of_the_docs_goes_on_behind_a_line_that_a_kill_cut_short(tmp_path):
    write_modules("extending.md", "A tracker", tmp_path)
    (name,) = tomllib.loads(settings("extending.md", "A tracker"))["logging"]["report_to"]
    run = begin(tmp_path, 6, report_to=[name])
    commit(run, 1, 2)
    await catch_up(run, follows=False)
    written = run.store.path(f"{FOLDER}/mortal.jsonl")
    written.write_text(written.read_text()[:-20])
    commit(run, 3)
    (reached,) = await catch_up(run, follows=False)
    assert (reached.step, reached.error) == (3, "")
    assert [json.loads(line)["step"] for line in written.open()] == [0, 1, 2, 3]


def test_the_command_brings_a_run_that_had_no_tracker_to_one(tmp_path):
    run = begin(tmp_path, 6)
    commit(run, 1, 2)
    command = [sys.executable, "-m", "mortal", "track", "tracked", "--runs-dir", str(tmp_path)]
    said = subprocess.run([*command, "--to", "trackio"], capture_output=True, text=True, check=True)
    assert "trackio has the run up to step 2" in said.stdout + said.stderr
    assert [step for _, step in trackio_rows(find_run(tmp_path, "tracked"))] == [0, 1, 2]
