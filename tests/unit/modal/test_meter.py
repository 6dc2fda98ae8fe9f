"""What a run is said to cost is what its containers lived, whatever was lost on the way."""

import pytest

from mortal_steps.places.modal import meter
from mortal_steps.places.modal.messages import CallResult, ContainerTimes
from mortal_steps.places.modal.meter import Meter
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.store import RunStore


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(meter, "time", clock)
    return clock


@pytest.fixture
def counted(tmp_path):
    """A meter, and the seconds that it has counted by kind."""
    store = RunStore(tmp_path)

    def seconds():
        found = {}
        for row in read_costs(store.path(COSTS)):
            found[row["kind"]] = found.get(row["kind"], 0.0) + row["seconds"]
        return found

    return Meter(store, RunConfig().compute), seconds


def answer(container, *, startup=0.0, idle=0.0, busy=0.0):
    times = ContainerTimes(container=container, startup_s=startup, idle_s=idle, busy_s=busy)
    return CallResult(value=1, times=times)


def test_a_container_that_was_replaced_is_not_idle_until_the_end(clock, counted):
    meter, seconds = counted
    clock.now = 10
    meter.answered("actor-0", "actor", "train_step/0/0", answer("one", startup=4, busy=6))
    clock.now = 100  # the first one was taken away, and another one did the next step
    meter.answered("actor-0", "actor", "train_step/1/0", answer("two", startup=4, busy=6))
    clock.now = 105
    meter.ended(2)
    assert seconds() == {"start_up": 8, "useful": 12, "idle": 5 + 2}


def test_seconds_of_a_lost_call_are_counted_once(clock, counted):
    meter, seconds = counted
    clock.now = 10
    meter.answered("actor-0", "actor", "train_step/0/0", answer("one", startup=4, busy=6))
    clock.now = 60  # asked for at 15, and lost since
    meter.lost("actor-0", "actor", "train_step/1/0", 45)
    clock.now = 100
    meter.ended(2)
    assert seconds() == {"start_up": 4, "useful": 6, "idle": 5, "repeated": 45}


def test_a_container_that_outlived_a_lost_call_is_idle_once(clock, counted):
    """Its answer was lost; it says that it has waited ever since."""
    meter, seconds = counted
    clock.now = 10
    meter.answered("actor-0", "actor", "train_step/0/0", answer("one", startup=4, busy=6))
    clock.now = 60
    meter.lost("actor-0", "actor", "train_step/1/0", 45)
    clock.now = 80
    meter.answered("actor-0", "actor", "train_step/1/0", answer("one", idle=64, busy=6))
    meter.ended(0)
    assert seconds() == {"start_up": 4, "useful": 12, "idle": 5 + 14, "repeated": 45}
    assert sum(seconds().values()) == 80


@pytest.mark.parametrize(
    ("mode", "with_one"), [("distributed", ["rollout"]), ("single_node", ["actor", "rollout"])]
)
def test_a_sandbox_of_environments_costs_what_it_reserves(tmp_path, mode, with_one):
    compute = {"backend": "modal", "mode": mode}
    reserved = {"modal": {"environment": {"cpu": 4.0, "memory_mb": 8192}}}
    plain, beside = (
        meter.Meter(
            RunStore(tmp_path / name), parse_config({"compute": {**compute, **more}}).compute
        )
        for name, more in (("plain", {}), ("beside", reserved))
    )
    for name in ("plain", "beside"):
        (tmp_path / name).mkdir()
    for role in ("actor", "rollout", "reward"):
        before = plain.spent, beside.spent
        for each in (plain, beside):
            each.answered(role, role, "start", answer(role, startup=100, busy=50))
            each.answered(role, role, "x/0/0", answer(role, idle=10, busy=90))
        more = (beside.spent - before[1]) - (plain.spent - before[0])
        expected = 100 * (4 * 0.00003942 + 8 * 0.00000672) if role in with_one else 0.0
        assert more == pytest.approx(expected)


def test_workers_that_share_a_container_do_not_count_it_twice(clock, counted):
    meter, seconds = counted
    clock.now = 10
    meter.answered("actor-0", "actor", "prepare", answer("node", startup=4, busy=6))
    clock.now = 20
    meter.answered("rollout-0", "rollout", "generate/0/0", answer("node", busy=10))
    clock.now = 23
    meter.ended(2)
    assert seconds() == {"start_up": 4, "useful": 16, "idle": 5}


def test_the_first_container_of_an_actor_in_several_answers_for_all(tmp_path):
    spent = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        meter = Meter(RunStore(folder), RunConfig().compute, number)
        meter.answered("actor-0", "actor", "train_step/0/0", answer("one", busy=6))
        spent.append(meter.spent)
    assert spent[1] == 2 * spent[0]


def test_what_is_paid_after_a_line_that_was_cut_short_counts(clock, counted, tmp_path):
    """As when the machine went down, or its disk was full."""
    meter, seconds = counted
    clock.now = 10
    meter.answered("actor-0", "actor", "train_step/0/0", answer("one", busy=6))
    with (tmp_path / COSTS).open("a") as file:
        file.write('{"step": 1, "stage": "tra')
    meter.answered("actor-0", "actor", "train_step/2/0", answer("one", busy=7))
    assert seconds() == {"useful": 13}
