"""tests.support.chaos: what the logs of workers that were killed tell."""

import pytest

from tests.support.chaos.comparison import sampling
from tests.support.chaos.worker_logs import read_events

AT = "2026-01-31 23:59:"
SHARD = "steps/000003/generations-1.parquet"
WORKER, HOST, OWNER = (
    "mortal_steps.rollout.worker",
    "mortal_steps.hosts.inside",
    "mortal_steps.compute.container",
)


def line(second, logger, said):
    return f"{AT}{second:02},000 INFO {logger}: {said}\n"


def started(second):
    return line(second, OWNER, "process 77 is a mortal_steps.rollout.worker:RolloutWorker")


def sampled(second):
    return line(second, WORKER, f"sampling {SHARD} with v3")


def of_log(folder, *lines):
    """Return how often the shard was sampled, cut off, and sampled after it was committed."""
    (folder / "rollout-0.log").write_text("".join(lines))
    attempts, cut_off, needlessly = sampling(read_events(folder))
    return attempts[SHARD], cut_off.get(SHARD, 0), needlessly


@pytest.mark.parametrize("unfinished", ["", "    ^^^^^^^^", f"{AT}02,000 INFO {OWNER}: proc"])
def test_a_killed_worker_has_committed_nothing_whatever_it_was_printing(tmp_path, unfinished):
    ends = line(4, OWNER, "start ends")
    lines = (started(1), sampled(2), unfinished, started(3), ends, sampled(5))
    assert of_log(tmp_path, *lines) == (2, 1, [])


def test_a_process_of_environments_that_starts_cuts_off_no_shard(tmp_path):
    handler = "process 78 is a mortal_steps.environments.inside.handler:EnvironmentHandler"
    lines = (started(1), sampled(2), line(3, HOST, handler), line(4, OWNER, "generate/3/1 ends"))
    assert of_log(tmp_path, *lines) == (1, 0, [])
    assert of_log(tmp_path, *lines, sampled(5)) == (2, 0, [SHARD])
