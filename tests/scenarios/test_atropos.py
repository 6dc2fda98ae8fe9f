"""`mortal atropos` against Atropos' own API server and an environment of its."""

import json
import re
import signal
import statistics
import time

import httpx
import pytest

from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.atropos.modes import MODES, STEPS, arguments
from tests.support.atropos.peer import free_ports, has_atropos, make_model, real_peer

pytestmark = pytest.mark.skipif(
    not has_atropos(), reason="no interpreter with atroposlib; `make atropos-env` makes one"
)

RISES_BY = 0.1


def rewards(run):
    return [row["reward"] for row in run.metrics()]


@pytest.fixture
def folder(mortal, tmp_path, monkeypatch):
    """A folder with the model, in which the command is called."""
    make_model(tmp_path / "model")
    monkeypatch.setattr(mortal, "folder", tmp_path)
    return tmp_path


@pytest.mark.parametrize("mode", MODES)
def test_the_reward_rises(mortal, folder, mode):
    (port,) = free_ports(1)
    with real_peer(folder / "model", folder, policy_port=port) as url:
        said = mortal(*arguments(url, port, mode, mode))
    run = find_run(folder / "runs", mode)
    found = rewards(run)
    assert len(found) == STEPS
    assert statistics.mean(found[-8:]) > statistics.mean(found[:8]) + RISES_BY
    assert "parameters on 64 sequences of environments a step" in said
    assert re.search(rf"step {STEPS}/{STEPS}  .* 8 groups  .* s/step  \d+ trained tokens/s", said)
    assert f"BENCHMARK SUMMARY ({mode})" in said
    assert re.search(r"Peak resident set: +\d\.\d\d GB", said)
    assert f"Total steps:             {STEPS}" in said
    # Of the first batch, endpoint and trainer have the same weights.
    assert run.metrics()[0]["sampling/sampling_logp_difference/max"] < 1e-3


def test_killed_and_resumed_no_batch_is_lost_or_trained_on_twice(mortal, folder):
    (port,) = free_ports(1)
    steps = folder / "runs" / "killed" / "steps"
    with real_peer(folder / "model", folder, policy_port=port) as url:
        command = arguments(url, port, "killed", "none")
        for step in (4, 15):
            process = mortal.start(*command)
            while not (steps / f"{step:06d}" / "batch.json").exists():
                assert process.poll() is None, process.stdout.read()
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
        mortal("resume", "killed", "--runs-dir", "runs")
        made, left = made_and_left(url)
    run = find_run(folder / "runs", "killed")
    assert run.manifest.status == "completed"
    assert run.manifest.attempts == 3
    assert len(rewards(run)) == STEPS
    assert made == STEPS + left, "every batch that was made is trained on, or is still there"
    batches = [(steps / f"{step:06d}" / "batch.json").read_bytes() for step in range(STEPS)]
    rows = [row for batch in batches for row in json.loads(batch.splitlines()[1])]
    groups = [json.dumps(row["columns"]) for row in rows]
    assert len(set(groups)) == len(groups), "a group is in one batch"
    assert [file for file in check_run(folder / "runs", "killed").files if file.damage] == []


def made_and_left(url):
    """Take the batches that the server still has; return how many it has made, and these."""
    left = 0
    while httpx.get(f"{url}/batch").json()["batch"] is not None:
        left += 1
    return httpx.get(f"{url}/status").json()["current_step"], left
