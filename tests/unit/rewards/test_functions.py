"""mortal.rewards.functions: the reward functions that come along."""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib.font_manager  # noqa: F401  # its first import on a machine starts fc-list
import pytest

from mortal.rewards.functions import exact_match
from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import RewardError
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.rewards.functions import (
    RUNS_THE_ANSWER,
    _verifier,
    reasoning_gym_score,
    trust_gym_rows,
)
from mortal_steps.types import Problem
from tests.support.refused import refused


@pytest.fixture(autouse=True)
def rows_from_reasoning_gym() -> Iterator[None]:
    trust_gym_rows(True)
    yield
    trust_gym_rows(False)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def problems_of(task: str, **options: Any) -> list[Problem]:
    config = DataConfig(source=f"reasoning_gym:{task}", options={"size": 2, **options})
    return load_problems(config, seed=0)[0]


def judge(problems: list[Problem], completions: list[Any]) -> list[float | None]:
    columns = {name: [p.columns[name] for p in problems] for name in problems[0].columns}
    return reasoning_gym_score(completions, log_metric=lambda name, value: None, **columns)


def test_exact_match() -> None:
    completions = ["cba", " cba\n", "cb", "", chat("cba"), "7"]
    answers = ["cba", "cba", "cba", "cba", "cba", 7]
    assert exact_match(completions, answer=answers) == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert exact_match(["a", "b", "c"], answer=[["a", "b"]] * 3) == [1.0, 1.0, 0.0]
    with refused(DatasetRowError, "None", "row 1"):
        exact_match(["x", "None"], answer=["x", None])


def test_reasoning_gym_verifier_judges_text_tags_and_chat() -> None:
    problems = problems_of("spell_backward", min_word_len=4, max_word_len=4)[:1] * 5
    answer = problems[0].columns["answer"]
    wrong_end = answer[:3] + ("x" if answer[3] != "x" else "y")
    completions = [
        answer,
        f" {answer}\n",
        f"Let me see. <answer>{answer}</answer> Done.",
        chat(answer),
        wrong_end,
    ]
    assert judge(problems, completions) == [1.0, 1.0, 1.0, 1.0, 0.75]


@pytest.mark.parametrize("task", ["rearc", "arc_agi", "knights_knaves", "leg_counting", "maze"])
def test_the_right_answer_is_right_after_the_way_through_json(task: str) -> None:
    """arc_agi and rearc compare tuples, which JSON turns into lists."""
    problems = problems_of(task)
    assert judge(problems, [p.columns["answer"] for p in problems]) == [1.0, 1.0]


def test_the_verifier_knows_the_tasks_parameters() -> None:
    """Decimal places decide the tolerance."""
    options = {"min_num_decimal_places": 1, "max_num_decimal_places": 1}
    problems = problems_of("decimal_arithmetic", **options)[:1]
    near = f"{float(problems[0].columns['answer']) + 0.04:.2f}"
    assert judge(problems, [near]) == [1.0]
    assert problems[0].columns["task_options"] == options


def test_a_verifier_that_stumbles_abstains_and_is_counted() -> None:
    problems = problems_of("prime_factorization")
    columns = {name: [p.columns[name] for p in problems] for name in problems[0].columns}
    logged: dict[str, float] = {}
    answers = ["two times three", problems[1].columns["answer"]]
    scores = reasoning_gym_score(answers, log_metric=logged.__setitem__, **columns)
    assert scores == [None, 1.0]
    assert logged == {"reasoning_gym_unjudged": 0.5}


def test_without_reasoning_gym_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_of("spell_backward", min_word_len=4)
    _verifier.cache_clear()
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with refused(RewardError, "pip install 'reasoning-gym=="):
        judge(problems, ["a", "b"])


def test_verifiers_that_would_run_the_answer_are_refused(tmp_path: Any) -> None:
    problems = problems_of("n_queens")
    target = tmp_path / "executed"
    with refused(RewardError, "n_queens", "Python"):
        judge(problems, [f"open({str(target)!r}, 'w')"] * 2)
    assert not target.exists()


def test_every_such_verifier_of_this_reasoning_gym_is_known() -> None:
    """Those that evaluate the answer themselves or hand it to a helper that does."""
    from reasoning_gym.factory import DATASETS

    runs = re.compile(r"\b(?:eval|exec|(?:sympy|sp)\.parse_expr|parse_expr|sympify)\((?!entry)")
    entry_alone = {"bitwise_arithmetic"}  # its helper evaluates the entry, which is ours

    def runs_something(kind: type) -> bool:
        judge = inspect.getsource(kind.score_answer)
        module = inspect.getmodule(kind)
        called = set(re.findall(r"\b(?:self\.)?(\w+)\(", judge))
        helpers = [getattr(kind, name, None) or vars(module).get(name) for name in called]
        texts = [
            inspect.getsource(one)
            for one in helpers
            if inspect.isroutine(one) and (one.__module__ or "").startswith("reasoning_gym")
        ]
        return any(runs.search(text) for text in [judge, *texts])

    found = {task for task, (kind, _) in DATASETS.items() if runs_something(kind)}
    assert found - entry_alone == RUNS_THE_ANSWER
