"""What a run tells of itself: facts found in plain rows of its logs."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.config import RunConfig
from mortal_steps.report.watch import found_by, watchers_of
from mortal_steps.report.watchers.base import Episodes, Seen
from mortal_steps.report.watchers.rewards import EQUAL

NOISE = itertools.cycle([0.02, -0.03, 0.01, 0.0, -0.01, 0.03, -0.02])


def config(**alerts):
    rewards = {"functions": ["m:f", "m:g"], "on_error": "mask"}
    modal = {"max_cost": 20.0}
    training = {"batch_size": 4, "num_generations": 5}
    return RunConfig.model_validate(
        {"rewards": rewards, "training": training, "compute": {"modal": modal}, "alerts": alerts}
    )


def told(everything, **alerts):
    """Event and step of all that is found."""
    steps = []

    def shown():
        for seen in everything:
            steps.append(seen.step)
            yield seen

    found = found_by(watchers_of(config(**alerts)), shown())
    return [(watcher.event, steps[-1]) for watcher, _ in found]


def rewards(*values):
    return [Seen(step=n, metrics={"step": n, "reward": v}) for n, v in enumerate(values, start=1)]


def noisy(level, steps):
    return [level + next(NOISE) for _ in range(steps)]


def test_a_reward_that_falls_and_stays_down_has_collapsed():
    [(event, step)] = told(rewards(*noisy(0.6, 40), *noisy(0.05, 40)))
    assert event == "mortal.reward.collapsed"
    assert 40 + 5 <= step <= 40 + 11, "half of the window below, and five steps in a row"


def test_a_collapse_says_from_where_and_what_to_do():
    [(_, found)] = found_by(watchers_of(config()), rewards(*[0.5] * 40, *[0.0] * 20))
    assert found.text == (
        "the mean training reward of the last 10 steps is 0.000; it was 0.500 after step 40"
    )
    assert "`mortal fork {run} --at-step N` with a checkpoint up to step 40" in found.advice


@pytest.mark.parametrize(
    "values",
    [
        [*noisy(0.1, 30), *noisy(0.6, 60)],
        [*noisy(0.6, 30), *noisy(0.45, 30)],
        [*noisy(0.6, 30), *[0.0] * 3, *noisy(0.6, 30)],
        [*noisy(-0.5, 30), *noisy(-0.6, 30)],
        [0.0] * 50,
        [*[0.6] * 9, *[0.0] * 9],
    ],
    ids=["rises", "a little less", "a dip", "negative", "never any", "too short"],
)
def test_what_is_no_collapse(values):
    assert told(rewards(*values)) == []


def test_a_negative_reward_collapses_too():
    assert len(told(rewards(*noisy(-0.4, 30), *noisy(-2.0, 30)))) == 1


def test_rare_rewards_do_not_collapse_by_chance():
    """Eight completions a step, one in twenty of them right: the best mean of ten steps is far
    above the others. What is far below it and not there by chance is found in the same noise."""
    random = Random(0)

    def steps(chance, count):
        return [sum(random.random() < chance for _ in range(8)) / 8 for _ in range(count)]

    assert told(rewards(*steps(0.05, 1000))) == []
    [(_, step)] = told(rewards(*steps(0.05, 100), *steps(0.5, 100), *steps(0.0, 50)))
    assert 200 < step <= 220


def evaluations(*values, every=50):
    rows = [{"step": n * every, "f": 1.0} for n in range(len(values))]
    return [
        Seen(step=row["step"], evaluation=row if value is None else {**row, "reward": value})
        for row, value in zip(rows, values, strict=True)
    ]


def test_an_evaluation_far_below_the_best_one_has_regressed():
    regressed = "mortal.evaluation.regressed"
    assert told(evaluations(0.1, 0.6, 0.58, 0.5)) == [(regressed, 150)]
    assert told(evaluations(0.1, 0.6, 0.58, 0.5), evaluation_drop=0.5) == []
    assert told(evaluations(-0.1, -0.5)) == [(regressed, 50)]
    assert told(evaluations(0.3, None, 0.3)) == []


def test_a_regression_that_goes_on_is_told_once_and_a_later_one_again():
    low, high = 0.2, 0.6
    steps = [step for _, step in told(evaluations(high, low, low, low, high, high, low))]
    assert steps == [50, 300]


def masked(step, **functions):
    counts = {f"rewards/{name}/masked": count for name, count in functions.items()}
    return Seen(step=step, metrics={"step": step, "reward": 0.5, **counts})


def test_many_masked_completions_are_told_by_the_function_that_failed():
    assert told([masked(1, f=2, g=0), masked(2, f=0, g=1)]) == []
    [(watcher, found)] = found_by(watchers_of(config()), [masked(1, f=0, g=0), masked(2, f=1, g=5)])
    assert (watcher.event, found.value) == ("mortal.reward.masked", 0.25)
    assert found.text == "25 % of the completions of step 2 are left out, as g failed on them"


FLAT, MISSING = "mortal.reward.flat", "mortal.reward.missing"


def flat(*equal, reward=0.0, first=1):
    return [
        Seen(step=n, metrics={"step": n, "reward": reward, EQUAL: 1.0 if same else 0.5})
        for n, same in enumerate(equal, start=first)
    ]


def test_ten_steps_without_any_difference_are_told_once():
    steps = flat(False, *[True] * 60)
    assert told(steps) == [(FLAT, 11)]
    [(_, found)] = found_by(watchers_of(config()), steps)
    assert "of steps 2 to 11 are equal (reward 0.000)" in found.text
    assert "all advantages are 0" in found.text and "rollout.temperature" in found.advice


def test_fewer_steps_without_a_difference_and_what_trl_does_not_report_are_no_news():
    assert told(flat(*[True] * 9, False, *[True] * 9)) == []
    assert told(rewards(*[0.0] * 10)) == []


def test_steps_without_a_difference_that_come_back_later_are_told_again():
    again = flat(*[True] * 12, False, *[True] * 10)
    assert told(again, quiet_steps=5) == [(FLAT, 10), (FLAT, 23)]
    assert told(again) == [(FLAT, 10)]


def test_equal_rewards_that_change_from_step_to_step_are_told_by_their_ends():
    steps = [*flat(*[True] * 9), *flat(True, reward=1.0, first=10)]
    [(_, found)] = found_by(watchers_of(config()), steps)
    assert "(reward between 0.000 and 1.000)" in found.text


def test_three_steps_without_a_score_are_told_once():
    assert told(rewards(None, None, 0.5, None, None)) == []
    assert told(rewards(0.5, *[None] * 40)) == [(MISSING, 4)]
    [(_, found)] = found_by(watchers_of(config()), rewards(0.5, *[None] * 40))
    assert "no completion of steps 2 to 4 has a reward" in found.text


def timed(*seconds):
    return [Seen(step=n, seconds=s) for n, s in enumerate(seconds, start=1)]


def test_a_step_far_longer_than_those_before_is_slow():
    assert told(timed(*[20.0] * 12, 101.0)) == [("mortal.step.slow", 13)]
    assert told(timed(*[20.0] * 12, 99.0)) == []
    assert told(timed(*[20.0] * 9, 500.0)) == [], "too few are known"
    assert told(timed(*[1.0] * 12, 29.0)) == [], "nobody waits for that"
    assert told(timed(*[1.0] * 12, 29.0), slow_step_s=10.0) == [("mortal.step.slow", 13)]


def test_the_stage_that_made_a_step_slow_is_named():
    def seen(step, seconds, reward):
        stages = {"generate": 5.0, "reward": reward, "train_step": 4.0}
        return Seen(step=step, seconds=seconds, stages=stages)

    usual = [seen(step, 10.0, 1.0) for step in range(12)]
    for reward, blamed in ((81.0, ". A call of reward took 81.0 s instead of 1.0 s"), (20.0, "")):
        ((_, found),) = found_by(watchers_of(config()), [*usual, seen(13, 90.0, reward)])
        assert found.text == f"step 13 took 90.0 s; the steps before took 10.0 s{blamed}"


def test_slow_steps_that_come_and_go_are_told_once():
    assert len(told(timed(*[1.0] * 12, *[40.0, 1.0, 1.0, 1.0] * 50))) == 1


def test_most_of_the_budget_is_told_once():
    spent = [Seen(step=n, spent_share=n / 10) for n in range(1, 12)]
    assert told(spent) == [("mortal.budget.80", 8)]
    assert told(spent, cost_share=0.5) == [("mortal.budget.50", 5)]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 9))
def test_an_episode_begins_after_enough_quiet_steps(held, quiet):
    episodes, last = Episodes(quiet), None
    for step, holds in enumerate(held):
        begins = episodes.begins(step, holds=holds)
        fresh = last is None or (step - last > max(quiet, 1))
        assert begins == (holds and fresh)
        last = step if holds else last


def test_every_event_has_a_name_of_its_own():
    made = watchers_of(config())
    assert len({watcher.event for watcher in made}) == len(made)
    assert all(watcher.event.startswith("mortal.") for watcher in made)
