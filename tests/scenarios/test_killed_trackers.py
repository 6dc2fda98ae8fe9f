"""A run that three trackers follow, killed twice with SIGKILL and resumed: each tracker has each
step once, in one run, and the model is that of the run that nothing happens to."""

import time

from mortal_steps.runs.run import find_run
from tests.support.chaos.processes import kill, started_by
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.tracked import TRACKERS, read_back, trackio_rows
from tests.support.undisturbed import assert_same, undisturbed

STEPS = 12
SETTINGS = [f"training.max_steps={STEPS}", "evaluation.on_start=true"]
TRACKED = [*SETTINGS, f"logging.report_to={list(TRACKERS)}", "logging.sample_steps=2"]
SLOWLY = "    __import__('time').sleep(0.3)\n    return"
"""So that the trackers' processes are there before the run has ended."""
FOLLOWER = b"report.trackers.follow"


def followers(flow):
    """The trackers' processes, each below its supervisor."""
    return [
        tracker
        for supervisor in started_by(flow, FOLLOWER)
        for tracker in started_by(supervisor, FOLLOWER)
    ]


def all_of(flow):
    """The flow, its trackers' processes, and what those have started."""
    trackers = followers(flow)
    return [flow, *trackers, *(inner for tracker in trackers for inner in started_by(tracker))]


def wait_for_record(run, step):
    """Until a tracker has told a step, so that the kill comes when there is something to lose."""
    deadline = time.monotonic() + PATIENCE_S
    while max((at for _, at in trackio_rows(run)), default=-1) < step:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_each_tracker_has_each_step_once_after_two_kills(server, project, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    rewards = (project / "rewards.py").read_text()
    (project / "rewards.py").write_text(rewards.replace("    return", SLOWLY))
    whole = undisturbed(project, SETTINGS)
    mortal = Mortal(project, server.api_url)
    chosen = [word for setting in TRACKED for word in ("--set", setting)]
    process = mortal.start("train", "tiny.toml", "--run-id", "tracked", *chosen)
    wait_for_step(mortal, "tracked", 3, process)
    run = find_run(project / "runs", "tracked")
    wait_for_record(run, 2)
    first = [pid for pid in reversed(all_of(process.pid)) if kill(pid)]  # all at once
    process.communicate()
    assert len(first) >= 1 + len(TRACKERS)

    process = mortal.start("resume", "tracked")
    wait_for_step(mortal, "tracked", 7, process)
    wait_for_record(run, 6)
    assert kill(followers(process.pid)[-1])  # one of the trackers alone, and then
    assert kill(process.pid)  # the flow, whose other trackers go on to what is committed
    process.communicate()
    mortal("resume", "tracked")

    run = find_run(project / "runs", "tracked")
    told = read_back(run)
    folders = len(list(run.store.path("tracking/wandb").glob("offline-run-*")))
    assert folders == 1
    assert told == {name: list(range(STEPS + 1)) for name in TRACKERS}
    assert len({run_id for run_id, _ in trackio_rows(run)}) == 1
    assert_same(project, "tracked", whole)
    mortal("verify", "tracked")
