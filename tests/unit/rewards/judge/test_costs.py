"""What judges cost counts as what workers cost: in the report, and against the budget."""

import json
from pathlib import Path

import pytest

from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.judge.ledger import Ledger, Spending
from mortal_steps.runs.costs import COSTS, add_up
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.judge_asked import ask, make
from tests.support.judge_payments import payment
from tests.support.judge_stub import Answer, JudgeStub
from tests.support.run_info import run_info


class Costly:
    """Workers that have cost half a dollar."""

    def spent(self) -> float:
        return 0.5


def test_a_budget_is_spent_by_judges_too(tmp_path: Path) -> None:
    config = RunConfig.model_validate({"compute": {"modal": {"max_cost": 2.0}}})
    session = Session(Run(RunStore(tmp_path), config, run_info(tmp_path)), Costly())
    budget = session.budget
    assert (budget.spent_share(), budget.overspent()) == (0.25, None)
    ledger = Ledger(tmp_path)
    ledger.pay(payment("a", 1.0, dollars=1.0))
    assert (budget.spent_share(), budget.overspent()) == (0.75, None)
    ledger.pay(payment("b", None, dollars=0.5))
    assert budget.overspent() == "compute.modal.max_cost = 2 dollars (2.00 spent)"


def test_the_report_adds_judges_to_containers(tmp_path: Path) -> None:
    assert add_up(tmp_path) is None
    Ledger(tmp_path).pay(payment("a", 1.0, dollars=0.0))
    assert add_up(tmp_path) is None, "without prices, no cost is known"
    Ledger(tmp_path).pay(payment("a", 1.0, dollars=0.5))
    alone = add_up(tmp_path)
    assert alone is not None
    assert (alone.total, alone.by_kind, alone.by_stage) == (0.5, {"judge": 0.5}, {"reward": 0.5})
    row = {"step": 0, "stage": "reward", "kind": "useful", "dollars": 0.25}
    (tmp_path / COSTS).write_text(json.dumps(row) + "\n")
    both = add_up(tmp_path)
    assert both is not None
    assert both.total == pytest.approx(0.75)
    assert (both.by_kind["judge"], both.by_kind["useful"]) == (0.5, 0.25)
    assert both.by_stage == {"reward": 0.75}


def test_that_an_endpoint_counts_no_tokens_is_told_once(
    stub: JudgeStub, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grade = json.dumps({"choices": [{"message": {"content": '{"score": 5}'}}]})
    stub.always = lambda body: Answer(body=grade)
    assert ask(make(stub, prices={"input": 1e6, "output": 1e6}), ["a", "bb"]) == [5.0, 5.0]
    spent = Spending(run_dir).so_far()
    assert (spent.answers, spent.prompt_tokens, spent.dollars) == (2, 0, 0.0)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "does not say how many tokens" in record.message
