"""mortal_steps.rewards.calling.dispatch: functions are never believed; what fails is named."""

import asyncio
import re
import time
from typing import Any

import numpy
import pytest
import torch

from mortal_steps.errors import TransientError
from mortal_steps.rewards.calling.calls import CallFailure, CallScores
from tests.support.refused import refused
from tests.support.rewards.calling import call, slow
from tests.support.rewards.shards import CHAT, make_shard


def raises(**kwargs: Any) -> list[float]:
    def inner() -> None:
        raise KeyError("column")

    inner()
    return []


async def raises_later(**kwargs: Any) -> list[float]:
    raise KeyError("column")


def exits(**kwargs: Any) -> list[float]:
    raise SystemExit(2)


def no_kwargs(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


def takes_others(completions: list[str], solution: list[str], level: list[int], **_: Any) -> Any:
    return [0.0] * len(completions)


def bad_metric(log_metric: Any, **kwargs: Any) -> list[float]:
    log_metric("length", "long")
    return []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            raises,
            [
                "raised KeyError: 'column'",
                "in inner",
                'raise KeyError("column")',
                "It is given prompts, completions, ",
            ],
        ),
        (raises_later, ["raised KeyError: 'column'", "in raises_later"]),
        (exits, ["raised SystemExit: 2"]),
        (takes_others, ["The dataset has no column solution, level. ", "It is given prompts, "]),
        (no_kwargs, ["unexpected keyword argument", "and **kwargs"]),
        (bad_metric, ["log_metric('length', 'long')", "no finite number"]),
    ],
)
def test_what_raises_is_named(function: Any, expected: list[str]) -> None:
    failure = call(f=function)["f"]
    assert isinstance(failure, CallFailure)
    assert failure.kind == "exception"
    assert "\n" not in failure.message
    for part in expected:
        assert part in f"{failure.message} {failure.remedy} {failure.trace}"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([1.0], "returned 1 score for 4 completions"),
        ([1.0] * 5, "returned 5 scores for 4 completions"),
        (3, "returned 3 (int)"),
        (None, "returned None (NoneType)"),
        ("1111", "returned '1111' (str)"),
        ({"a": 1}, "returned {'a': 1} (dict)"),
        (torch.tensor(1.0), "returned 1.0 (float)"),
        ([0, 0, 0, float("nan")], "returned nan (float) for problem train-1 (completion 1 of it)"),
        ([0, float("inf"), 0, 0], "returned inf (float) for problem train-0 (completion 1 of it)"),
        ([0, 0, 1e39, 0], "returned 1e+39 (float) for problem train-1 (completion 0 of it)"),
        ([10**400, 0, 0, 0], "... (int) for problem train-0"),
        (["1", 0, 0, 0], "'1' (str) for problem train-0"),
        ([[1.0], 0, 0, 0], "[1.0] (list) for problem train-0"),
        (numpy.ones((4, 2)), "[1.0, 1.0] (list) for problem train-0"),
    ],
)
def test_what_are_no_scores_is_named(returned: Any, expected: str) -> None:
    failure = call(f=lambda **kwargs: returned)["f"]
    assert isinstance(failure, CallFailure)
    assert failure.kind == "invalid"
    assert expected in failure.message


def test_the_failure_of_one_is_not_that_of_the_others() -> None:
    outcomes = call(bad=raises, later=raises_later, good=slow)
    assert [type(outcomes[name]) for name in ("bad", "later", "good")] == [
        CallFailure,
        CallFailure,
        CallScores,
    ]


def test_an_async_function_has_its_own_timeout() -> None:
    async def sleeps(**kwargs: Any) -> list[float]:
        await asyncio.sleep(30)
        return []

    async def times_out_itself(**kwargs: Any) -> list[float]:
        raise TimeoutError("the judge")

    began = time.monotonic()
    outcomes: dict[str, Any] = call(timeout_s=0.2, a=sleeps, b=slow, c=times_out_itself)
    assert time.monotonic() - began < 25
    assert (outcomes["a"].kind, outcomes["a"].message) == ("timeout", "gave no answer within 0.2 s")
    assert "in sleeps" in outcomes["a"].trace
    assert outcomes["b"].scores == [1.0] * 4
    assert (outcomes["c"].kind, outcomes["c"].message) == (
        "exception",
        "raised TimeoutError: the judge",
    )


@pytest.mark.parametrize("is_async", [False, True])
def test_errors_that_may_pass_stay_what_they_are(is_async: bool) -> None:
    def unreachable(**kwargs: Any) -> list[float]:
        raise TransientError("the judge is busy")

    async def unreachable_async(**kwargs: Any) -> list[float]:
        raise TransientError("the judge is busy")

    with refused(TransientError, "the judge is busy"):
        call(f=unreachable_async if is_async else unreachable)


def test_a_call_that_the_function_does_not_take_has_no_place() -> None:
    failures = call(f=no_kwargs, g=raises)
    ours, theirs = [one for one in failures.values() if isinstance(one, CallFailure)]
    assert (ours.place, ours.trace) == ("", "")
    assert theirs.place.startswith("tests/unit/rewards/test_call_failures.py, line")


@pytest.mark.parametrize(
    "function",
    [
        lambda completions, **kwargs: [text.strip() for text in completions],
        lambda completions, **kwargs: [float(re.match("a", text) is None) for text in completions],
        lambda completions, **kwargs: [text + "." for text in completions],
    ],
)
def test_messages_that_are_taken_for_text_are_told_so(function: Any) -> None:
    failure = call(make_shard(("ba", "b"), prompt=CHAT), f=function)["f"]
    assert isinstance(failure, CallFailure)
    for part in ("chat messages", "list of messages", "completion[0]['content']", "strings"):
        assert part in failure.remedy
    of_text = call(f=lambda completions, **kwargs: completions.strip())["f"]
    assert isinstance(of_text, CallFailure) and "messages" not in of_text.remedy


def test_a_generator_that_raises_is_named_with_its_place() -> None:
    def yields(**kwargs: Any) -> Any:
        yield 1.0
        raise KeyError("column")

    failure = call(f=yields)["f"]
    assert isinstance(failure, CallFailure)
    assert failure.kind == "exception" and "in yields" in failure.trace
