"""What goes wrong with a run is noted once, from plain rows of its logs."""

import dataclasses
import itertools
import resource
from random import Random

import pytest

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.alerts import EQUAL, Alerts
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types.identity import Parent
from tests.support.run_info import run_info

NOISE = itertools.cycle([0.02, -0.03, 0.01, 0.0, -0.01, 0.03, -0.02])


@pytest.fixture
def run(tmp_path):
    rewards = {"functions": ["m:f", "m:g"], "on_error": "mask"}
    modal = {"max_cost": 20.0}
    training = {"batch_size": 4, "num_generations": 5}
    config = RunConfig.model_validate(
        {"rewards": rewards, "training": training, "compute": {"modal": modal}}
    )
    (tmp_path / "run").mkdir()
    return Run(RunStore(tmp_path / "run"), config, run_info(tmp_path))


@pytest.fixture
def found(run):
    """The notices about these rows of metrics or evaluations."""

    def look(rows):
        alerts = Alerts(run)
        for row in rows:
            alerts.evaluation(row) if "f" in row else alerts.step(row)
        return alerts.take()

    return look


def told(notices):
    return [(notice.event, notice.step) for notice in notices]


def rewards(*values):
    return [{"step": n, "reward": v} for n, v in enumerate(values, start=1)]


def noisy(level, steps):
    return [level + next(NOISE) for _ in range(steps)]


def test_a_reward_that_falls_and_stays_down_has_collapsed(found):
    [(event, step)] = told(found(rewards(*noisy(0.6, 40), *noisy(0.05, 40))))
    assert event == "mortal.reward.collapsed"
    assert 40 + 5 <= step <= 40 + 11, "half of the window below, and five steps in a row"


def test_a_collapse_says_from_where_and_what_to_do(run, found):
    [notice] = found(rewards(*[0.5] * 40, *[0.0] * 20))
    assert "is 0.000" in notice.text and "0.500 after step 40" in notice.text
    assert f"`mortal fork {run.store.root} --at-step N`" in notice.advice
    assert "up to step 40" in notice.advice


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
def test_what_is_no_collapse(found, values):
    assert found(rewards(*values)) == []


def test_a_negative_reward_collapses_too(found):
    assert len(found(rewards(*noisy(-0.4, 30), *noisy(-2.0, 30)))) == 1


def test_rare_rewards_do_not_collapse_by_chance(found):
    """Eight completions a step, one in twenty of them right: the best mean of ten steps is far
    above the others. What is far below it and not there by chance is found in the same noise."""
    random = Random(0)

    def steps(chance, count):
        return [sum(random.random() < chance for _ in range(8)) / 8 for _ in range(count)]

    assert found(rewards(*steps(0.05, 1000))) == []
    [(_, step)] = told(found(rewards(*steps(0.05, 100), *steps(0.5, 100), *steps(0.0, 50))))
    assert 200 < step <= 220


def evaluations(*values, every=50):
    rows = [{"step": n * every, "f": 1.0} for n in range(len(values))]
    return [
        row if value is None else {**row, "reward": value}
        for row, value in zip(rows, values, strict=True)
    ]


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ((0.1, 0.6, 0.58, 0.5), [150]),
        ((-0.1, -0.5), [50]),
        ((0.3, None, 0.3), []),
        ((0.6, 0.2, 0.6, 0.2), [50]),
    ],
)
def test_an_evaluation_far_below_the_best_one_has_regressed(found, values, steps):
    regressed = "mortal.evaluation.regressed"
    found = [one for one in told(found(evaluations(*values))) if one[0] == regressed]
    assert found == [(regressed, step) for step in steps]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_an_evaluation_in_which_every_function_abstained_is_told_of(found, value):
    [notice, *rest] = found(evaluations(0.3, value, value, 0.3))
    assert (notice.event, notice.step, rest) == ("mortal.evaluation.missing", 50, [])
    assert "the evaluation after step 50 has no reward" in notice.text


def test_a_fork_is_not_held_to_rewards_of_its_parent(run):
    """Its parent may have had other reward functions, whose scores are on another scale."""
    parent = Parent(run_id="p", uid="1" * 32, step=40, state_id="", fingerprint="", history_id="")
    run.info = dataclasses.replace(run.info, parent=parent)
    for row in rewards(*noisy(0.9, 40)):
        run.append("metrics.jsonl", row)
    run.append("evaluations.jsonl", *evaluations(0.9, every=40))
    alerts = Alerts(run)
    alerts.evaluation({"step": 50, "reward": 0.1})
    for row in rewards(*[0.0] * 40, *noisy(0.1, 40))[40:]:
        alerts.step(row)
    assert alerts.take() == []


def masked(step, **functions):
    counts = {f"rewards/{name}/masked": count for name, count in functions.items()}
    return {"step": step, "reward": 0.5, **counts}


def test_many_masked_completions_are_told_by_the_function_that_failed(found):
    assert found([masked(1, f=2, g=0), masked(2, f=0, g=1)]) == []
    [notice] = found([masked(1, f=0, g=0), masked(2, f=1, g=5)])
    assert (notice.event, notice.value) == ("mortal.reward.masked", 0.25)
    assert "25 %" in notice.text and "g failed" in notice.text


def test_many_episodes_whose_environment_failed_are_told(found):
    assert found([{"step": 1, "reward": 0.5, "episodes/stop_failed": 0.1}]) == []
    [notice] = found([{"step": 1, "reward": 0.5, "episodes/stop_failed": 0.25}])
    assert (notice.event, notice.value) == ("mortal.reward.masked", 0.25)
    assert "environment failed" in notice.text


def test_answers_that_changed_are_told_once_in_a_run(run):
    for _ in range(2):
        alerts = Alerts(run)
        alerts.differed(0.25, 3, "problem train-7, generation 1: tool ask: 'a' before, 'b' now")
        alerts.differed(0.5, 4, "another one")
    [notice] = read_notices(run.store)
    assert (notice.event, notice.step, notice.value) == ("mortal.environment.differs", 3, 0.25)
    for part in ("25 %", "problem train-7, generation 1", "'a' before, 'b' now"):
        assert part in notice.text


def flat(*equal, reward=0.0, first=1):
    return [
        {"step": n, "reward": reward, EQUAL: 1.0 if same else 0.5}
        for n, same in enumerate(equal, start=first)
    ]


def test_ten_steps_without_any_difference_are_told_once(found):
    [notice] = found(flat(False, *[True] * 60))
    assert (notice.event, notice.step) == ("mortal.reward.flat", 11)
    assert "of steps 2 to 11 are equal (reward 0.000)" in notice.text
    assert "rollout.temperature" in notice.advice


def test_fewer_steps_without_a_difference_and_what_trl_does_not_report_are_no_news(found):
    assert found(flat(*[True] * 9, False, *[True] * 9)) == []
    assert found(rewards(*[0.0] * 10)) == []


def test_equal_rewards_that_change_from_step_to_step_are_told_by_their_ends(found):
    [notice] = found([*flat(*[True] * 9), *flat(True, reward=1.0, first=10)])
    assert "(reward between 0.000 and 1.000)" in notice.text


def test_three_steps_without_a_score_are_told_once(found):
    assert found(rewards(None, None, 0.5, None, None)) == []
    [notice] = found(rewards(0.5, *[None] * 40))
    assert (notice.event, notice.step) == ("mortal.reward.missing", 4)
    assert "steps 2 to 4" in notice.text


def test_most_of_the_budget_is_told_once(run):
    alerts = Alerts(run)
    for step in range(1, 12):
        alerts.spent(step / 10, step)
    assert told(alerts.take()) == [("mortal.budget.80", 8)]
    again = Alerts(run)
    again.spent(0.9, 12)
    assert again.take() == []


def test_what_cannot_be_written_down_is_told_once_all_the_same(run, caplog):
    alerts = Alerts(run)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for row in flat(*[True] * 30):
            alerts.step(row)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_notices(run.store) == [] and "notices.jsonl cannot be written" in caplog.text
    assert told(alerts.take()) == [("mortal.reward.flat", 10)]
    alerts.step(flat(True, first=31)[0])
    assert alerts.take() == []
