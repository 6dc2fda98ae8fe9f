"""mortal_steps.rewards.base: what is made of scores and completions."""

from typing import Any

import pytest

from mortal_steps.rewards.base import text_of
from mortal_steps.scores import weighted_sum


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 1.0, "b": 2.0}, 5.0),
        ({"a": 1.0, "b": None}, 1.0),
        ({"a": None, "b": 0.0}, 0.0),
        ({"a": None, "b": None}, None),
    ],
)
def test_weighted_sum_is_over_the_functions_that_scored(scores: Any, expected: Any) -> None:
    assert weighted_sum(scores, {"a": 1.0, "b": 2.0}) == expected


def test_text_of_a_completion() -> None:
    assert text_of("ba") == text_of([{"role": "assistant", "content": "ba"}]) == "ba"
