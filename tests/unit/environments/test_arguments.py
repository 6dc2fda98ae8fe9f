"""Made-up arguments are such as the tool's annotations say."""

from typing import Any, Literal

import pytest

from mortal_steps.environments.inside.loading import schemas
from mortal_steps.environments.trials.arguments import made_up_arguments


def tool(
    whole: int,
    part: float,
    flag: bool,
    word: str,
    kind: Literal["red", "blue"],
    many: list[int],
    pair: tuple[int, str],
    table: dict[str, float],
    either: int | str,
    mixed: list[str] | int,
    anything: Any,
    nothing: str | None = None,
    default: int = 5,
):
    """Take anything.

    Args:
        whole: A number.
        part: A number.
        flag: A flag.
        word: A word.
        kind: A colour.
        many: Numbers.
        pair: Two things.
        table: A table.
        either: One of two.
        mixed: One of two.
        anything: Anything.
        nothing: A word, or nothing.
        default: A number.
    """


(SCHEMA,) = schemas([tool])


def test_arguments_are_those_of_the_schema():
    assert made_up_arguments(SCHEMA, 1) == {
        "whole": 2,
        "part": 2.5,
        "flag": False,
        "word": "text 2",
        "kind": "blue",
        "many": [2],
        "pair": [2, "text 2"],
        "table": {"key": 2.5},
        "either": 2,
        "mixed": ["text 2"],
        "anything": "text 2",
        "nothing": "text 2",
        "default": 2,
    }


@pytest.mark.parametrize("number", [0, 2])
def test_even_ones_leave_defaults_out_and_all_can_be_given(number):
    found = made_up_arguments(SCHEMA, number)
    assert "nothing" not in found and "default" not in found
    assert found["whole"] == number + 1
    tool(**found)
