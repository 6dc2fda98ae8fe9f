"""The schedule is a pure function: same seed, same problems, seeds and versions, always."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.config import TrainingConfig
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.schedule import (
    RunSchedule,
    completion_seed,
    num_train_steps,
    policy_version,
    problem_indices,
    shard_bounds,
    train_seed,
)


@given(
    num_problems=st.integers(1, 50),
    batch_size=st.integers(1, 70),
    seed=st.integers(0, 2**31 - 1),
    shuffle=st.booleans(),
)
def test_every_epoch_sees_every_problem_once(num_problems, batch_size, seed, shuffle):
    steps = -(-2 * num_problems // batch_size)
    rows = [
        row
        for step in range(steps)
        for row in problem_indices(
            num_problems, batch_size=batch_size, step=step, seed=seed, shuffle=shuffle
        )
    ]
    for epoch in (0, 1):
        seen = Counter(rows[epoch * num_problems : (epoch + 1) * num_problems])
        assert seen == Counter(range(num_problems))


def test_steps_can_be_asked_for_in_any_order():
    def ask(step):
        return problem_indices(100, batch_size=7, step=step, seed=3, shuffle=True)

    forwards = [ask(step) for step in range(60)]
    assert [ask(step) for step in reversed(range(60))] == forwards[::-1]


@given(num_problems=st.integers(1, 200), num_shards=st.integers(1, 40))
def test_shards_cover_the_batch_evenly(num_problems, num_shards):
    bounds = shard_bounds(num_problems, num_shards)
    assert [row for start, stop in bounds for row in range(start, stop)] == list(
        range(num_problems)
    )
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@pytest.mark.parametrize(
    ("staleness", "every", "versions"),
    [
        (0, 1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (0, 3, [0, 0, 0, 3, 3, 3, 6, 6]),
        (1, 1, [0, 0, 1, 2, 3, 4, 5, 6]),
        (2, 1, [0, 0, 0, 1, 2, 3, 4, 5]),
        (1, 2, [0, 0, 0, 2, 2, 4, 4, 6]),
    ],
)
def test_policy_versions(staleness, every, versions):
    assert versions == [
        policy_version(step, staleness=staleness, sync_weights_every=every)
        for step in range(len(versions))
    ]


def test_seeds_differ_wherever_their_place_differs():
    seeds = {
        completion_seed(run, step, problem, generation)
        for run in range(3)
        for step in range(5)
        for problem in ("train-1", "train-11")
        for generation in range(4)
    }
    assert len(seeds) == 3 * 5 * 2 * 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert train_seed(1, 12) != train_seed(11, 2)
    assert completion_seed(0, 0, "train-0", 0) == 7910587017465362222, "seeds are for ever"


def test_number_of_steps():
    assert num_train_steps(100, TrainingConfig(batch_size=8, max_steps=7, num_epochs=5)) == 7
    assert num_train_steps(100, TrainingConfig(batch_size=8, max_steps=-1, num_epochs=5)) == 62
    assert num_train_steps(3, TrainingConfig(batch_size=8, max_steps=-1, num_epochs=1)) == 1


@pytest.mark.parametrize(
    ("held_out", "evaluation", "expected"),
    [
        ({}, {}, []),
        ({"eval_samples": 2}, {}, [0, 5]),
        ({"eval_split": "test"}, {"on_start": False}, [5]),
        ({"eval_sets": {"a": "a.jsonl"}}, {}, [0, 5]),
        ({"eval_samples": 2}, {"eval_steps": 0}, []),
        ({"eval_samples": 2}, {"eval_steps": 2}, [0, 2, 4, 5]),
    ],
)
def test_held_out_problems_are_evaluated_unless_told_otherwise(held_out, evaluation, expected):
    config = RunConfig(data={"source": "x", **held_out}, evaluation=evaluation)
    schedule = RunSchedule(
        rollout=config.rollout,
        evaluation=config.evaluation,
        save_steps=100,
        num_steps=5,
        holds_evaluations=config.evaluates,
    )
    assert [step for step in range(6) if schedule.evaluates(step)] == expected


def test_a_seed_of_its_own_follows_from_the_runs_id():
    first, again, other = (
        RunConfig(seed=-1, run_id=run_id).with_own_seed() for run_id in ("a", "a", "b")
    )
    assert first == again
    assert first.seed == 1151825539, "seeds are for ever"
    assert 0 <= other.seed != first.seed
    assert RunConfig(seed=7, run_id="a").with_own_seed().seed == 7


def test_parts_of_an_epoch_end_with_a_whole_batch():
    def steps(num_problems, num_epochs):
        training = TrainingConfig(batch_size=8, max_steps=-1, num_epochs=num_epochs)
        return num_train_steps(num_problems, training)

    assert [steps(80, part) for part in (0.01, 0.1, 0.11, 0.5, 1.0, 1.5, 2.25)] == [
        *(1, 1, 2, 5, 10, 15, 23)
    ]
    assert steps(3, 0.5) == 1
    assert type(TrainingConfig(num_epochs=3.0).num_epochs) is int
