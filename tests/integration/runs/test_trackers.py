"""Trackers that follow a run, in processes of their own that are killed."""

import asyncio
import subprocess
import sys

import pytest

from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.orchestration.opening import open_run
from mortal_steps.orchestration.tracking import Follower, Tracking, catch_up, with_logging
from mortal_steps.report.trackers.base import FOLDER
from mortal_steps.report.trackers.holding import holder_of
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from tests.support.tracked import (
    TRACKERS,
    begin,
    commit,
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
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    if sys.modules.get("wandb", sys) is None:  # an actor in this process has shut it out
        monkeypatch.delitem(sys.modules, "wandb")


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
    again = [catch_up(run, name, follows=False) for name in TRACKERS]
    assert [(each.step, each.error) for each in await asyncio.gather(*again)] == [(6, "")] * 3
    assert read_back(run) == dict.fromkeys(TRACKERS, [0, 1, 2, 3, 4, 5, 6])
    assert {run_id for run_id, _ in trackio_rows(run)} == {f"tracked-{run.info.uid[:8]}"}


async def test_a_tracker_that_fails_is_told_and_what_it_lacks_is_told_at_the_end(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    run = begin(tmp_path, 6, report_to=["broken:Broken"])
    news = []
    tracking = Tracking(run, lambda: news.append(read_notices(run.store)[-1]))
    commit(run, 1, 2)
    async with asyncio.timeout(PATIENCE_S):
        while not news:
            await asyncio.sleep(0.05)
    await tracking.finish()
    assert [notice.event for notice in news] == ["mortal.tracker.failed", "mortal.tracker.behind"]
    assert "broken:Broken failed: OSError: the network is away" in news[0].text
    assert "lacks 2 of 2 steps" in news[1].text
    assert news[1].advice.endswith("`mortal track tracked --to broken:Broken`")


async def test_two_processes_do_not_bring_a_run_to_one_tracker(tmp_path):
    run = begin(tmp_path, 6, report_to=["tensorboard"])
    commit(run, 1)
    lease = acquire(run.store)
    follower = Follower(run, "tensorboard")
    following = asyncio.create_task(follower.follow())
    await told(follower, 1)
    with pytest.raises(StoreError, match="brings it to tensorboard already"):
        await catch_up(run, "tensorboard", follows=False)
    follower.end()
    await following
    lease.release()
    assert holder_of(run.store.path(FOLDER), "tensorboard") is None
    assert follower.error == "" and tensorboard_steps(run) == [0, 1]


def test_a_tracker_that_cannot_be_imported_is_an_error_before_a_run_is_made(tmp_path):
    (tmp_path / "mine.py").write_text("import no_such_module\n")
    run = begin(tmp_path, 6)
    config = with_logging(run, report_to=["mine:Mine"]).config
    with pytest.raises(ConfigError, match="mine:Mine.*No module named 'no_such_module'"):
        open_run(config.model_copy(update={"run_id": "new"}))
    assert not (tmp_path / "new").exists()


def test_the_command_brings_a_run_that_had_no_tracker_to_one(tmp_path):
    run = begin(tmp_path, 6)
    commit(run, 1, 2)
    command = [sys.executable, "-m", "mortal", "track", "tracked", "--runs-dir", str(tmp_path)]
    said = subprocess.run([*command, "--to", "trackio"], capture_output=True, text=True, check=True)
    assert "trackio has the run up to step 2" in said.stdout + said.stderr
    assert [step for _, step in trackio_rows(find_run(tmp_path, "tracked"))] == [0, 1, 2]
