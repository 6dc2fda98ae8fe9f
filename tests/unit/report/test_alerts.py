"""What goes wrong with a run is noted once, from plain rows of its logs."""

import dataclasses
import itertools
import resource
from random import Random

import pytest

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.alerts import Alerts
from mortal_steps.report.idleness import EQUAL
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types.identity import Parent
from tests.support.run_info import run_info

NOISE = itertools.cycle([0.02, -0.03, 0.01, 0.0, -0.01, 0.03, -0.02])


@pytest.fixture
def run(tmp_path):
    return run_of(tmp_path)


def run_of(tmp_path, **training):
    rewards = {"functions": ["m:f", "m:g"], "on_error": "mask"}
    modal = {"max_cost": 20.0}
    training = {"batch_size": 4, "num_generations": 5, **training}
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


def rows(count, *, first=1, **metrics):
    """Steps whose rewards teach something, but for what the metrics say."""
    return [
        {"step": n, "reward": 0.5, "grad_norm": 0.1, EQUAL: 0.25, **metrics}
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("key", ["num_scored", "num_rows", "num_prepared_rows"])
def test_ten_steps_without_a_gradient_are_told_whatever_is_trained_on(found, key):
    reward = 0.5 if key == "num_scored" else None
    still = {"grad_norm": 0.0, "reward": reward, key: 4}
    assert found(rows(9, **still)) == []
    [notice] = found([*rows(3, reward=reward, **{key: 4}), *rows(40, first=4, **still)])
    assert (notice.event, notice.step) == ("mortal.training.no_gradient", 13)
    assert "the gradient was 0 in steps 4 to 13" in notice.text


def test_a_gradient_of_zero_that_equal_rewards_explain_is_told_as_those(found):
    notices = found(rows(30, grad_norm=0.0, **{EQUAL: 1.0}))
    assert told(notices) == [("mortal.reward.flat", 10)]


def test_completions_that_are_all_cut_off_are_told(found):
    ratio = "completions/clipped_ratio"
    assert found([*rows(9, **{ratio: 1.0}), *rows(9, first=10, **{ratio: 0.9})]) == []
    [notice] = found(rows(30, **{ratio: 1.0}))
    assert (notice.event, notice.step) == ("mortal.completions.cut_off", 10)
    assert "training.max_completion_length" in notice.advice


def test_tool_calls_that_all_fail_are_told(found):
    [notice] = found(rows(30, **{"tools/failure_frequency": 1.0}))
    assert (notice.event, notice.step) == ("mortal.tools.failing", 10)


def scores(f, g, spread=0.0):
    return {
        **{"rewards/f/mean": f, "rewards/f/std": spread},
        **{"rewards/g/mean": g, "rewards/g/std": 0.4},
    }


def test_a_reward_function_that_finds_nothing_in_any_completion_is_told(found):
    [notice] = found(rows(40, **scores(0.0, 0.5)))
    assert (notice.event, notice.step) == ("mortal.reward.constant", 20)
    assert "from f (0.000)" in notice.text


@pytest.mark.parametrize(
    "steps",
    [
        rows(40, **scores(1.0, 0.5)),
        [
            *rows(10, **scores(0.0, 0.5)),
            *rows(1, first=11, **scores(0.1, 0.5, 0.3)),
            *rows(29, first=12, **scores(0.0, 0.5)),
        ],
        rows(19, **scores(0.0, 0.5)),
    ],
    ids=["always right", "once another", "too short"],
)
def test_scores_that_are_no_sign_of_a_blind_function(found, steps):
    assert found(steps) == []


def test_a_run_stops_after_as_many_idle_steps_as_it_may_have(tmp_path):
    alerts = Alerts(run_of(tmp_path, max_idle_steps=3))
    for row in [*flat(True, True, False), *rewards(None, None), *flat(True)]:
        assert alerts.idle() is None
        alerts.step(row)
    assert "training.max_idle_steps = 3" in alerts.idle()
    alerts.step(flat(False)[0])
    assert alerts.idle() is None


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
