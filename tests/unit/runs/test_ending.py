"""What ends a run before its last step, from plain rows of its logs."""

import pytest
from pydantic import ValidationError

from mortal_steps.config.until import UntilConfig
from mortal_steps.errors import ConfigError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.ending import check_interval, decide, missing_metric
from tests.support.refused import refused


def ends(scores=(), metrics=(), *, dollars=0.0, hours=0.0, name="reward", **until):
    evaluations = [{"step": n, name: score} for n, score in enumerate(scores)]
    found = decide(
        UntilConfig(**until),
        30,
        metrics=list(metrics),
        evaluations=evaluations,
        dollars=dollars,
        hours=hours,
    )
    assert found is None or found.step == 30
    return None if found is None else (found.key, found.why)


@pytest.mark.parametrize(
    ("scores", "reached"),
    [((0.95,), False), ((0.95, 0.85), False), ((0.95, 0.9), True), ((0.2, None, 0.91, 0.9), True)],
)
def test_a_goal_has_to_be_reached_twice_in_a_row(scores, reached):
    why = ("goal", "reward was at least 0.9 in 2 evaluations in a row")
    assert ends(scores, goal=0.9) == (why if reached else None)


def test_a_goal_can_be_for_the_lower_end_of_the_interval():
    until = UntilConfig(goal=0.9, by="interval")

    def ended(low):
        rows = [{"step": 0, "reward": 0.95}]
        given = {"metrics": [], "evaluations": rows, "dollars": 0.0, "hours": 0.0}
        return decide(until, 1, **given, lows={"reward": low})

    assert ended(0.89) is None
    assert "the lower end of reward, 0.91, was at least 0.9" in ended(0.91).why


def test_a_score_without_intervals_cannot_reach_a_goal_by_its_interval():
    until = UntilConfig(goal=0.9, by="interval")
    row = {"step": 1, "reward": 0.95, "eval_bench_reward": 0.95, "exact": 0.5}
    with refused(ConfigError, 'training.until.by = "interval"', "reward", "'mean'"):
        check_interval(until, row, {"exact"})
    check_interval(until, row, {"exact", "reward"})
    check_interval(until, {"step": 1, "exact": 0.5}, {"exact"})  # nothing scored it this time
    check_interval(UntilConfig(goal=0.9), row, {"exact"})
    check_interval(UntilConfig(goal=0.9, by="interval", metric="exact"), row, {"exact"})


def test_a_loss_has_to_come_down_to_its_goal():
    assert ends((2.0, 0.5, 0.4), goal=0.5, name="loss")[1].startswith("loss was at most 0.5")
    assert ends((2.0, 0.6, 0.4), goal=0.5, name="loss") is None
    assert ends((0.9, 0.4), goal=0.5, metric="mean_token_accuracy", name="loss") is None


@pytest.mark.parametrize(
    ("scores", "over"),
    [
        ((0.1, 0.5, 0.4), False),
        ((0.1, 0.5, 0.4, 0.5), True),
        ((0.1, 0.5, 0.4, 0.6), False),
        ((0.5, 0.4), False),
    ],
)
def test_patience_ends_with_evaluations_without_a_new_best(scores, over):
    found = ends(scores, patience=2)
    assert found == (
        ("patience", "reward was 0.5 2 evaluations ago and no better since") if over else None
    )


def test_budgets_are_sums_over_the_steps():
    rows = [{"step": n, "num_sampled_tokens": 100, "num_scored": 8} for n in range(3)]
    assert ends(metrics=rows, max_tokens=301) is None
    assert ends(metrics=rows, max_tokens=300)[0] == "max_tokens"
    assert ends(metrics=rows, max_rollouts=24)[0] == "max_rollouts"
    assert ends(dollars=2.0, max_dollars=2.5) is None
    assert ends(dollars=2.5, max_dollars=2.5)[0] == "max_dollars"
    assert ends(hours=3.0, max_hours=3.0)[0] == "max_hours"


def test_tokens_of_rows_are_those_that_trl_has_counted():
    rows = [{"step": n, "num_prepared_rows": 4, "num_tokens": 50.0 * n} for n in (1, 2)]
    assert ends(metrics=rows, max_tokens=101) is None
    assert ends(metrics=rows, max_tokens=100)[0] == "max_tokens"


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ({"goal": 0.9}, "the run has none; hold problems out"),
        ({"metric": "exact"}, "metric = 'exact' is for goal or patience"),
    ],
)
def test_what_cannot_end_a_run_is_refused(until, message):
    with pytest.raises(ValidationError, match=message):
        RunConfig.model_validate({"training": {"until": until}})


def test_a_score_that_no_evaluation_has_is_named():
    held_out = {"eval_samples": 8}
    rewards = {"functions": ["m:right"]}
    until = {"metric": "rihgt", "goal": 0.9}
    with pytest.raises(ValidationError, match=r"'rihgt' is no score .* have reward, right"):
        RunConfig.model_validate(
            {"data": held_out, "rewards": rewards, "training": {"until": until}}
        )


def test_a_score_that_evaluations_turn_out_not_to_have_is_named():
    rows = [{"step": 0, "loss": 2.0, "mean_token_accuracy": 0.3}, {"step": 9, "loss": 1.0}]
    until = UntilConfig(metric="mean_token_acuracy", goal=0.9)
    said = missing_metric(until, rows)
    assert "'mean_token_acuracy' is no score" in said
    assert "have loss, mean_token_accuracy" in said
    assert not missing_metric(UntilConfig(metric="mean_token_accuracy", goal=0.9), rows)
    assert not missing_metric(until, [])
    rows = [{"step": 0, "reward": 0.5, "eval_bench_reward": 0.5}]
    until = UntilConfig(metric="eval_bench_rewards/exact/mean", goal=0.9)
    assert "have eval_bench_reward" in missing_metric(until, rows, "eval_bench_")
    without = [{"step": 0, "reward": 0.5}]  # not in this evaluation
    assert not missing_metric(until, without, "eval_bench_")
    assert not missing_metric(UntilConfig(metric="reward", goal=0.9), rows, "eval_bench_")
