"""Environments that are tried out without a model, each in real processes."""

import pytest

from mortal_steps.config import EnvironmentConfig, RewardsConfig
from mortal_steps.environments.trials.trial import EnvironmentTrial
from mortal_steps.environments.trials.tried import GivenCall
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.orchestration.trials.environment_trial import check_resets
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.types import Problem
from tests.support.environments import unsteady
from tests.support.paths import ROOT

CODE = unsteady.__name__
KINDS = (
    unsteady.Steady,
    unsteady.Unique,
    unsteady.Counting,
    unsteady.Imported,
    unsteady.Observing,
    unsteady.Judging,
    unsteady.Failing,
    unsteady.Hanging,
)
HERE, ELSEWHERE = "in the same process", "in another process"


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.chdir(ROOT)


def trial_of(*kinds, functions=(), **options):
    factory = {kind.__name__: f"{CODE}:{kind.__name__}" for kind in kinds}
    environment = EnvironmentConfig(factory=factory, **options)
    rewards = RewardsConfig(functions=functions)
    return EnvironmentTrial(environment=environment, rewards=rewards, seed=3, passed_on=(), app="")


def problem_of(kind):
    prompt = [{"role": "user", "content": "Shop."}]
    columns = {"environment": kind.__name__, "target": 7}
    return Problem(id=f"train-{kind.__name__}", prompt=prompt, columns=columns)


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        trial = trial_of(*KINDS, functions=(f"{CODE}:near",), timeout_s=3.0)
        tried = trial.try_out(problems=[problem_of(kind) for kind in KINDS], calls=None)
    assert not tried.is_good
    return {row.environment: row for row in tried.rows}


def test_each_tool_is_called_with_made_up_arguments_and_the_rewards_after_it(rows):
    steady = rows["Steady"]
    assert [str(each.call) for each in steady.episode.calls] == [
        "add(amount=1)",
        "answer()",
        "add(amount=2, what='text 2')",
        "answer()",
    ]
    answers = [each.content.split()[0] for each in steady.episode.calls]
    assert answers == ["1", "42", "3", "42"]
    assert steady.episode.prompt[-1]["content"].startswith("Shop. Reach 7 from 0.")
    assert (steady.episode.rewards["Steady"], steady.episode.rewards["near"]) == (3.0, 0.3)
    assert steady.episode.rewards["Unique"] is None
    assert (steady.differences, steady.episode.has_failed) == ([], False)


@pytest.mark.parametrize(
    ("kind", "what", "where"),
    [
        ("Unique", "answer()", [HERE, ELSEWHERE]),
        ("Counting", "answer()", [HERE]),
        ("Imported", "answer()", [ELSEWHERE]),
        ("Observing", "reset", [HERE, ELSEWHERE]),
        ("Judging", "reward Judging", [HERE, ELSEWHERE]),
    ],
)
def test_the_first_thing_that_differs_is_named(rows, kind, what, where):
    differences = rows[kind].differences
    assert [each.what for each in differences] == [what] * len(where)
    assert [each.where for each in differences] == where
    assert all(each.before != each.after for each in differences)


def test_what_has_no_answer_is_said(rows):
    failing, hanging = rows["Failing"].episode, rows["Hanging"].episode
    assert "OSError: no board" in failing.failure
    assert (failing.calls, failing.rewards) == ([], {})
    assert [each.failure for each in hanging.calls[:1]] == [None]
    assert "tool answer: no answer within 3 s" in hanging.calls[1].failure
    assert len(hanging.calls) == 2


def test_calls_may_be_given():
    calls = [GivenCall(name="add", arguments={"amount": 5}), GivenCall(name="sub", arguments={})]
    tried = trial_of(unsteady.Steady).try_out(problems=[problem_of(unsteady.Steady)], calls=calls)
    added, unknown = tried.rows[0].episode.calls
    assert added.content.startswith("5 apples")
    assert (unknown.content, unknown.is_error) == ("{'error': 'Tool sub not found.'}", True)
    assert tried.is_good


def test_a_run_is_refused_whose_first_rows_cannot_be_reset():
    kinds = (unsteady.Steady, unsteady.Failing)
    factory = {kind.__name__: f"{CODE}:{kind.__name__}" for kind in kinds}
    plan = Plan(RunConfig(environment=EnvironmentConfig(factory=factory))).environment
    check_resets(plan, [problem_of(unsteady.Steady)])
    with pytest.raises(EnvironmentFailedError, match=r"train-Failing: .*no board"):
        check_resets(plan, [problem_of(unsteady.Steady), problem_of(unsteady.Failing)])
