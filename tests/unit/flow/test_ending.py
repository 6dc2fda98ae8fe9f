"""Goals for scores that evaluations turn out not to have."""

import pytest

from mortal_flows.ending import check_goal
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info

SETS = {"math": {"type": "bench.py:Bench"}, "math_hard": {"type": "b.py:B", "eval_steps": 4}}


@pytest.mark.parametrize(
    ("metric", "warned"),
    [
        ("eval_math_reward", False),
        ("eval_math_hard_reward", False),  # not in this evaluation
        ("eval_math_rewards/exact/mean", True),  # such as while a judge is away
    ],
)
async def test_a_score_that_a_harness_has_not_answered_ends_no_run(
    tmp_path, caplog, metric, warned
):
    values = {
        "evaluation": {"sets": SETS, "eval_steps": 2, "decides": "math"},
        "training": {"until": {"metric": metric, "goal": 0.9}},
    }
    run = Run(RunStore(tmp_path), RunConfig.model_validate(values), run_info(tmp_path))
    run.append(EVALUATIONS, {"step": 0, "eval_math_reward": 0.5})
    await check_goal(Session(run, None), 0)
    assert ("is no score of the evaluations" in caplog.text) is warned
