"""mortal.rewards: environments are reward functions, and what they run is shut in."""

import logging
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mortal.rewards import ExecutionResult, FunctionConfig, RewardEnvironment
from mortal.rewards.examples import (
    CodeExecutionEnvironment,
    compute_reward,
    compute_reward_with_partial_credit,
    reward_helper_function,
)
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import NoIsolationError, RewardError, SandboxError
from mortal_steps.rewards import environments
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, CallScores, arguments_of
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.loading import load_term
from tests.support.docs_examples import settings, write_modules
from tests.support.rewards.calling import call, scored
from tests.support.rewards.shards import CHAT, make_shard
from tests.support.rewards.user_environments import CodeExecutionReward, NumpyTestEnv

STATE = TrainerState(global_step=0, max_steps=1)
ADDS = "Here:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds."
THREE = "def add(a, b):\n    return 3"
F = {"function": "f", "args": []}
ASSERTS = "assert add(1, 2) == 3\nassert add(2, 2) == 4"


class Swallows(RewardEnvironment):
    def score(self, completion: str, prompt: str, **kwargs: Any) -> float:
        try:
            return float(self.execute_in_sandbox(completion).success)
        except Exception:  # noqa: BLE001 - as people write it
            return 0.0


def test_the_documented_environments_score_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_modules("rewards.md", "Environments", tmp_path)
    toml = tomllib.loads(settings("rewards.md", "Environments"))
    config = RewardsConfig(**toml["rewards"])
    assert [term.weight for term in config.all_terms] == [0.2, 1.0]
    host = RewardHost(dict(zip(("Runs", "Prints"), config.all_terms, strict=True)))
    shard = make_shard(("print(' ba')", "print('ab')", "1/0", "print('ba'"))
    outcomes = {
        name: host.call([name], arguments_of(shard.groups, STATE), timeout_s=60.0)[name]
        for name in ("Runs", "Prints")
    }
    host.close()
    runs, prints = outcomes["Runs"], outcomes["Prints"]
    assert isinstance(runs, CallScores) and isinstance(prints, CallScores), outcomes
    assert (runs.scores, prints.scores) == ([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0])


def test_environments_as_users_write_them(caplog: pytest.LogCaptureFixture) -> None:
    numpy = "```python\nimport numpy\nassert numpy.arange(3).sum() == 3\n```"
    shard = make_shard((ADDS, "no code"), (numpy, "```python\n1/0\n```"), prompt=CHAT)
    environment = CodeExecutionReward()
    assert scored(environment, shard).scores == [1.0, 0.0, 1.0, 0.0]
    assert environment.score("no code", "") == 0.0
    with caplog.at_level(logging.WARNING):
        assert scored(NumpyTestEnv(), shard).scores == [1.0, 0.0, 1.0, 0.0]
    (record,) = caplog.records
    assert "NumpyTest: sandbox_config.image applies to Modal only" in record.message


def test_results_say_what_became_of_each_program() -> None:
    class Short(RewardEnvironment):
        function_config = FunctionConfig(wall_timeout=1.0, output_kb=1)

    codes = ["print(input())", "import time; time.sleep(9)", "print('x' * 9999)"]
    told, late, long = Short().execute_batch_in_function(codes, ["in", "", ""])
    assert isinstance(told, ExecutionResult)
    assert (told.success, told.stdout, told.exit_code, told.limit) == (True, "in\n", 0, None)
    assert (late.success, late.timed_out, late.limit) == (False, True, "wall_s")
    assert (long.success, long.truncated, long.stdout) == (False, True, "x" * 1024)


def test_a_lost_sandbox_is_a_failure_though_the_environment_makes_it_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def run_rows(self, rows: Any) -> Any:
            raise SandboxError("the sandbox was lost 3 times")

    monkeypatch.setattr(
        environments, "executor", lambda: SimpleNamespace(pool=lambda needs: Broken())
    )
    for environment in (Swallows(), CodeExecutionReward()):
        failure = call(make_shard(("print(1)",)), f=environment)["f"]
        assert isinstance(failure, CallFailure)
        assert (failure.kind, "lost its sandbox" in failure.message) == ("sandbox", True)


@pytest.mark.parametrize(
    "error", [NoIsolationError("there is no bubblewrap"), MemoryError("no room for a lane")]
)
def test_whatever_keeps_a_program_from_being_run_is_never_made_0(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def no_executor() -> Any:
        raise error

    monkeypatch.setattr(environments, "executor", no_executor)
    with pytest.raises(type(error), match=str(error)):
        Swallows()(prompts=["", ""], completions=["print(1)", "print(2)"])


def test_what_is_logged_stands_beside_its_own_completion() -> None:
    first_waits = threading.Event()

    class Logs(RewardEnvironment):
        def score(self, completion: str, prompt: str, log_extra: Any, **kwargs: Any) -> float:
            if completion == "a":
                assert first_waits.wait(30)
            log_extra("said", [completion])
            if completion == "b":
                log_extra("odd", [True])
                first_waits.set()
            return 1.0

    extra = scored(Logs(), make_shard(("a", "b"), ("c",))).extra
    assert extra == {"said": ["a", "b", "c"], "odd": [None, True, None]}


def test_an_exception_of_one_score_is_the_failure_of_the_call() -> None:
    class Raises(RewardEnvironment):
        def score(self, completion: str, prompt: str, **kwargs: Any) -> float:
            return {"a": 1.0}[completion]

    failure = call(make_shard(("a", "b")), f=Raises())["f"]
    assert isinstance(failure, CallFailure) and failure.message == "raised KeyError: 'b'"


def test_test_cases_give_all_or_part_of_the_credit() -> None:
    shard = make_shard((ADDS, THREE, "x("), columns={"testcases": ASSERTS})
    assert scored(CodeExecutionEnvironment(), shard).scores == [1.0, 0.0, 0.0]
    partial = CodeExecutionEnvironment(partial_credit=True)
    assert scored(partial, shard).scores == [1.0, 0.5, 0.0]
    assert scored(partial, make_shard((ADDS,), columns={"testcases": []})).scores == [None]
    assert (compute_reward(ADDS, ASSERTS), compute_reward(THREE, ASSERTS)) == (1.0, 0.0)
    assert compute_reward_with_partial_credit(THREE, ASSERTS) == 0.5
    assert reward_helper_function([ADDS, THREE], [ASSERTS] * 2) == [1.0, 0.0]


@pytest.mark.parametrize("columns", [{"answer": "3"}, {"tests": [{"unknown": 1}]}, {"tests": 3}])
def test_no_or_wrong_test_cases_are_a_failure_and_no_score(columns: dict[str, Any]) -> None:
    failure = call(make_shard((ADDS,), columns=columns), f=CodeExecutionEnvironment())["f"]
    assert isinstance(failure, CallFailure)
    assert failure.kind == ("exception" if "answer" in columns else "invalid")


def test_the_remedy_for_a_check_that_nobody_calls_is_told_in_full() -> None:
    check = "def check(candidate):\n" + "    assert candidate(1, 2) == 3\n" * 9
    failure = call(make_shard((ADDS,), columns={"tests": check}), f=CodeExecutionEnvironment())["f"]
    assert isinstance(failure, CallFailure)
    assert failure.message.endswith("or `check(NAME)` to the text")
    solved = make_shard((ADDS,), columns={"tests": check, "entry_point": "add"})
    assert scored(CodeExecutionEnvironment(), solved).scores == [1.0]


def test_programs_print_and_return_what_is_compared_outside() -> None:
    cases = [
        {"input": "1 2", "output": "3\n"},
        {"function": "double", "args": [[1, 2]], "expected": [1, 2, 1, 2]},
        {"fn_name": "half", "inputs": [[1]], "outputs": [0.5]},
    ]
    code = (
        "import sys\n"
        "class Solution:\n    def half(self, x): return x / 2\n"
        "def double(x): print('noise', end=''); return (*x, *x)\n"
        "if words := sys.stdin.read().split(): print(sum(map(int, words)), ' ')"
    )
    leaves_early = "import os; os._exit(0)"
    spins = "while True: pass"
    texts = (code, leaves_early, "print(3)", spins)
    shard = make_shard(texts, columns={"tests": cases})
    environment = CodeExecutionEnvironment(partial_credit=True, timeout=0.5)
    assert scored(environment, shard).scores == [1.0, 0.0, pytest.approx(1 / 3), 0.0]
    deep = "import sys\nsys.setrecursionlimit(10**6)\ndef f():\n    a = []\n"
    deep += "    for _ in range(3000): a = [a]\n    return a"
    call_f = make_shard((deep, "def f(): return 1"), columns={"tests": [{**F, "expected": 1}]})
    assert scored(environment, call_f).scores == [0.0, 1.0]
    early = make_shard((leaves_early,), columns={"tests": "assert False"})
    assert scored(CodeExecutionEnvironment(), early).scores == [0.0]


def test_the_short_form_and_the_term_of_the_configuration() -> None:
    (short,) = RewardsConfig(functions="sandbox").all_terms
    toml = tomllib.loads(settings("rewards.md", "Code and test cases"))
    (long,) = RewardsConfig(**toml["rewards"]).all_terms
    assert (short.full_name, short.type, long.type) == ("sandbox", "sandbox", "sandbox")
    made = [load_term(term) for term in (short, long)]
    assert [each.term.partial_credit for each in made] == [False, True]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"environment": "mortal.rewards:SandboxConfig"}, "no subclass of mortal.rewards.Reward"),
        (
            {
                "environment": "mortal.rewards.examples:CodeExecutionEnvironment",
                "options": {"x": 1},
            },
            "x = 1: ",
        ),
        ({"environment": "mortal.rewards.examples:CodeExecution"}, "did you mean CodeExecutionEnv"),
    ],
)
def test_what_is_no_environment_is_named(values: dict[str, Any], message: str) -> None:
    (term,) = RewardsConfig(terms=[{"type": "environment", **values}]).all_terms
    with pytest.raises(RewardError, match=message):
        load_term(term)
