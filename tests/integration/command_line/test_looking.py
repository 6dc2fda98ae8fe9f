"""What the commands that look at runs print."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mortal.terminal import listing
from mortal_steps.environments.processes.waiting import WAITING_FILE
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.store import RunStore
from tests.support.begun_runs import make_run

FORK = "demo-20261121-224758-fork-3fa2c1"


def test_each_run_has_a_line_with_its_whole_id(mortal, tmp_path):
    make_run(tmp_path, "one")
    make_run(tmp_path, FORK)
    code, output, _ = mortal("runs", "--runs-dir", tmp_path)
    lines = output.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["run", "one", FORK]
    assert lines[0].split() == list(listing.HEADING)
    assert max(map(len, lines)) < 80


def make_busy(folder: Path, run_id: str) -> RunStore:
    """A run that says that it samples its fourth step; who drives it is for the test."""
    store = make_run(folder, run_id, step=3)
    store.write_record(
        "manifest.json", RunManifest(status="running", step=3, pace_s=1.5), RunManifest
    )
    store.path("metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "reward": 0.{step}}}\n' for step in (1, 2, 3))
    )
    return store


def test_status_says_how_each_run_stands(mortal, tmp_path):
    make_run(tmp_path, "one")
    lease = acquire(make_busy(tmp_path, "busy"))
    try:
        code, output, _ = mortal("status", "--runs-dir", tmp_path)
        found = json.loads(mortal("status", "--json", "--runs-dir", tmp_path)[1])
    finally:
        lease.release()
    _, *lines = output.splitlines()
    busy, one = found
    assert code == 0
    assert (busy["run_id"], busy["status"], busy["step"]) == ("busy", "running", 3)
    assert (busy["reward"], busy["pace_s"]) == (pytest.approx(0.2), 1.5)
    assert busy["eta_s"] == 1.5 * (busy["max_steps"] - 3)
    assert lines[0].split()[:2] == ["busy", "running"]
    assert (one["run_id"], one["status"], one["waits_for"]) == ("one", "stopped", lines[2].strip())
    after = mortal("status", "--runs-dir", tmp_path)[1]
    assert "busy  interrupted" in after and "mortal resume busy" in after


def test_status_names_the_tool_that_is_waited_for(mortal, tmp_path):
    store, now = make_busy(tmp_path, "busy"), time.time()
    waiting = {"round": 3, "num_waiting": 2, "num_episodes": 64, "named": "tool search"}
    for shard, at in ((0, now), (1, now - 3600)):  # a killed worker has left the second one
        folder = store.path(f"steps/000003/generations-{shard}-calls")
        folder.mkdir(parents=True)
        (folder / WAITING_FILE).write_text(json.dumps({**waiting, "since": at - 41, "at": at}))
    lease = acquire(store)
    try:
        output = mortal("status", "--once", "--runs-dir", tmp_path)[1]
    finally:
        lease.release()
    [line] = [line.strip() for line in output.splitlines() if "episodes" in line]
    assert line.startswith("generate 3/0: round 3, 2 of 64 episodes in tool search for 4")
    assert "episodes" not in mortal("status", "--once", "--runs-dir", tmp_path)[1]


def test_logs_are_of_the_flow_or_of_a_role(mortal, tmp_path):
    store = make_run(tmp_path, "one")
    logs = store.path("logs")
    logs.mkdir()
    (logs / "flow.log").write_text("".join(f"line {number}\n" for number in range(1000)))
    for number in (0, 1):
        (logs / f"rollout-{number}.log").write_text(f"from {number}\n")

    def shown(*options):
        command = [sys.executable, "-P", "-m", "mortal", "logs", "one", "--runs-dir", tmp_path]
        return subprocess.run([*command, *options], capture_output=True, text=True).stdout

    assert shown("-n", "2", "--follow") == "line 998\nline 999\n"
    both = shown("--role", "rollout")
    assert "from 0\n" in both and "from 1\n" in both and "rollout-1.log" in both
    assert shown("--role", "rollout", "--worker", "1") == "from 1\n"
    where = ("one", "--runs-dir", tmp_path)
    code, _, errors = mortal("logs", *where, "--role", "reward")
    assert code == 1 and "reward-*.log" in errors and "flow, rollout-0, rollout-1" in errors
    assert "the roles are actor, rollout, reward" in mortal("logs", *where, "--role", "judge")[2]


@contextlib.contextmanager
def followed(folder):
    """The log of a run that is driven, and the process that follows it, which has read a line."""
    store = make_run(folder, "one")
    log = store.path("logs/flow.log")
    log.parent.mkdir()
    log.write_text("first\n")
    lease = acquire(store)
    try:
        command = [sys.executable, "-P", "-m", "mortal", "logs", "one", "--follow"]
        command += ["--runs-dir", folder]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert following.stdout.readline() == "first\n"
        yield log, following
    finally:
        lease.release()


def test_a_followed_log_ends_with_its_run_and_moves_no_cursor(tmp_path):
    with followed(tmp_path) as (log, following):
        with log.open("a") as file:
            file.write("\x1b[2Jsecond\n")
        assert following.stdout.readline() == "\\x1b[2Jsecond\n"
        assert following.poll() is None
    assert following.communicate(timeout=30) == ("", None)
    assert following.returncode == 0


def test_a_followed_log_ends_once_nobody_reads_it(tmp_path):
    with followed(tmp_path) as (log, following):
        following.stdout.close()
        with log.open("a") as file:
            file.write("second\n")
        assert following.wait(timeout=30) == 1


def test_samples_of_a_run_that_has_done_nothing_are_an_error(mortal, tmp_path):
    make_run(tmp_path, "one")
    code, _, errors = mortal("samples", "one", "--step", "3", "--runs-dir", tmp_path)
    assert code == 1 and "no completions of step 3: run one has not done a step yet" in errors
