"""tests.support.chaos: what the logs of workers that were killed tell."""

import pytest

from tests.support.chaos.comparison import attempts_of
from tests.support.chaos.schedule import Shot, at_teachers
from tests.support.chaos.worker_logs import read_events

AT = "2026-01-31 23:59:"
SHARD = "steps/000003/generations-1.parquet"
ENDS = "reward/3/1 ends"
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


def begins(second, path):
    return line(second, "mortal_steps.rewards.worker", f"scoring {path}")


def of_log(folder, *lines):
    """Return how often the shard was sampled, cut off, and sampled after it was committed."""
    (folder / "rollout-0.log").write_text("".join(lines))
    attempts, cut_off, needlessly = attempts_of(read_events(folder), "sampling")
    return attempts[SHARD], cut_off.get(SHARD, 0), needlessly


def of_rewards(folder, *lines):
    """Return the same of a shard that was scored."""
    (folder / "reward-0.log").write_text("".join(lines))
    return attempts_of(read_events(folder), "scoring")


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


def test_what_is_scored_again_after_it_was_committed_shows(tmp_path):
    scored, other = "steps/000003/rewards-1.parquet", "steps/000003/rewards-0.parquet"
    worker = "process 77 is a mortal_steps.rewards.worker:RewardWorker"
    killed = (line(1, OWNER, worker), begins(2, scored), line(3, OWNER, worker))
    lines = (*killed, begins(4, scored), line(5, OWNER, ENDS))
    assert of_rewards(tmp_path, *lines) == ({scored: 2}, {scored: 1}, [])
    found = line(6, OWNER, "reward/3/1 begins") + line(7, OWNER, ENDS)  # it was there
    assert of_rewards(tmp_path, *lines, found, begins(8, other)) == (
        {scored: 2, other: 1},
        {scored: 1},
        [],
    )
    assert of_rewards(tmp_path, *lines, begins(6, scored))[2] == [scored]


def test_a_teacher_is_killed_in_the_place_of_a_host_but_in_evaluations():
    volley = (
        Shot(victims=("host", "flow"), stage="reward", moment="inside"),
        Shot(victims=("host",), stage="evaluate", moment="after"),
    )
    ((first, second),) = at_teachers([volley])
    assert (first.victims, second.victims) == (("teacher", "flow"), ("host",))
