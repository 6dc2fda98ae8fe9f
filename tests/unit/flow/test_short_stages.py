"""Which task runs share one, and what that one says."""

from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import Completed, Failed

from mortal_tasks.short_stages import SHORT_S, ShortStages
from tests.support.task_runs import stages_of_step, stages_shown

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FLOW_RUN = uuid4()


def ended(name, *, ms=5.0, after_s=0.0, **said):
    said = {"flow_run_id": FLOW_RUN, "run_count": 1, "tags": [f"stage:{name.split('/')[0]}"]} | said
    begun, length = BEGIN + timedelta(seconds=after_s), timedelta(milliseconds=ms)
    times = {"start_time": begun, "end_time": begun + length, "total_run_time": length}
    return TaskRun(name=name, task_key="key", dynamic_key=name, **times, **said)


def test_what_is_short_is_told_as_one_with_all_names_lengths_and_tags():
    short = ShortStages()
    assert short.take(ended("reward/3/0", ms=2, after_s=2, tags=["stage:reward"]), Completed())
    assert short.take(ended("get_batch/3", ms=0.2, tags=["stage:get_batch"]), Completed())
    worker = ["stage:reward", "worker:1"]
    assert short.take(ended("reward/3/1", ms=4, after_s=3, tags=worker), Completed())
    [(context, one, state)] = short.pop()
    assert type(context) is type(copy_context())
    assert one.name == "step 3: get_batch 1 ms, reward 2 + 4 ms"
    assert one.tags == ["stage:get_batch", "stage:reward", "worker:1"]
    assert (one.flow_run_id, one.start_time) == (FLOW_RUN, BEGIN)
    assert one.total_run_time == timedelta(milliseconds=6.2)
    assert one.end_time == state.timestamp == BEGIN + one.total_run_time
    assert stages_shown([one.name]) == {("get_batch", 3): 1, ("reward", 3): 2}
    assert list(short.pop()) == []


def test_what_a_step_shows_is_the_same_whoever_shows_it():
    short, names = ShortStages(), ["generate/0/0", "generate/0/1", "train_step/0"]
    for name in ("get_batch/0", "reward/0/0"):
        assert short.take(ended(name), Completed())
    names += [one.name for _, one, _ in short.pop()] + ["reward/0/1"]
    assert stages_shown(names) == stages_of_step(0, shards=2)


@pytest.mark.parametrize(
    ("task_run", "state"),
    [
        (ended("generate/0/0"), Completed()),
        (ended("train_step/0"), Completed()),
        (ended("save_final"), Completed()),
        (ended("reward/0/0", ms=1e3 * SHORT_S), Completed()),
        (ended("reward/0/0", run_count=2), Completed()),
        (ended("reward/0/0"), Failed()),
        (ended("reward/0/0"), Completed(name="Cached")),
    ],
)
def test_what_somebody_may_look_for_is_told_by_itself(task_run, state):
    short = ShortStages()
    assert not short.take(task_run, state)
    assert list(short.pop()) == []


def test_a_step_is_told_when_it_is_done_and_in_its_own_flow_run():
    short, other = ShortStages(), uuid4()
    for name, flow_run in (("sync_weights/9/0", FLOW_RUN), ("get_batch/9", FLOW_RUN)):
        short.take(ended(name, flow_run_id=flow_run), Completed())
    short.take(ended("get_batch/9", flow_run_id=other), Completed())
    short.take(ended("get_batch/10", flow_run_id=other), Completed())
    of_9 = {one.flow_run_id: one.name for _, one, _ in short.pop(before=10)}
    assert of_9 == {
        FLOW_RUN: "step 9: sync_weights 5 ms, get_batch 5 ms",
        other: "step 9: get_batch 5 ms",
    }
    assert [one.name for _, one, _ in short.pop()] == ["step 10: get_batch 5 ms"]


def test_others_are_linked_to_the_one_that_is_told():
    short, batch = ShortStages(), ended("get_batch/1")
    assert short.shown_as(batch.id) is None
    short.take(batch, Completed())
    shown = short.shown_as(batch.id)
    [(_, one, _)] = short.pop()
    assert one.id == shown
