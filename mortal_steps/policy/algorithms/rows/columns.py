"""What each row has to hold.

TRL tells by the first row what all of them are, and takes whatever the others hold: a label of -1
counts as true, and of a missing text it says that it has no attribute.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mortal_steps.data.values import NO_PROMPT, shown
from mortal_steps.errors import DataError
from mortal_steps.types import Problem

PROMPT, COMPLETION, LABEL, MARGIN = "prompt", "completion", "label", "margin"
LABELS = "labels"
"""The column of tokens that are learned, as TRL has them."""
TOKENS = ("input_ids", "chosen_ids", "chosen_input_ids")
"""Columns of rows that TRL takes as they are, whatever texts they have besides."""

Row = Mapping[str, Any]


def row_of(problem: Problem) -> dict[str, Any]:
    """Return a row as the user wrote it."""
    prompt = {} if problem.prompt == NO_PROMPT else {PROMPT: problem.prompt}
    return {**prompt, **problem.columns}


def checked_rows(
    problems: Iterable[Problem], columns: Sequence[str], first: Row
) -> Iterator[dict[str, Any]]:
    """Yield the rows as the user wrote them. `columns` are those that the trainer looks for, and
    `first` is the first row of all. Raises `DataError` for a row that is of another kind, and for a
    value that means nothing to TRL."""
    has_tokens = any(first.get(name) is not None for name in TOKENS)
    read = [name for name in columns if name in CHECKS or not has_tokens]
    for problem in problems:
        row = row_of(problem)
        for name in read:
            wrong = CHECKS.get(name, _wrong_text)(name, row.get(name), first)
            if wrong is not None:
                found = "missing" if row.get(name) is None else shown(row[name])
                raise DataError(f"row {problem.id}: its column {name!r} is {found}{wrong}")
        yield row


def _wrong_text(name: str, value: Any, first: Row) -> str | None:
    """Return what is wrong with the value of a column of texts or messages."""
    kind, its = _kind_of(first.get(name)), _kind_of(value)
    if its == "":
        return ", and TRL takes text or a list of messages; convert it"
    if its == kind or (kind is None and name != PROMPT):
        return None  # a column that the first row does without says nothing
    return (
        f", and that of the first row, by which TRL tells what all rows are, is {kind or 'missing'}"
        "; write the same kind in each row, or remove the row"
    )


def _kind_of(value: Any) -> str | None:
    """Return the kind of a text in words; None for a missing one, "" for what is none."""
    if value is None:
        return None
    if isinstance(value, str):
        return "text"
    is_chat = isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return "a list of messages" if is_chat else ""


def _wrong_label(name: str, value: Any, first: Row) -> str | None:
    if name not in first or (isinstance(value, int | float) and value in (0, 1)):
        return None
    return "; write true for a good answer, and false for a bad one"


def _wrong_margin(name: str, value: Any, first: Row) -> str | None:
    if name not in first or isinstance(value, int | float):
        return None
    return (
        ", and TRL takes a number, by which the chosen answer should be better than the rejected "
        f"one; write it in each row, or leave the column out with data.drop_columns = [{name!r}]"
    )


def _wrong_labels(name: str, value: Any, first: Row) -> str | None:
    if value is None or isinstance(value, list):
        return None
    return (
        ", and TRL takes that column for the tokens to learn; leave it out with "
        f"data.drop_columns = [{name!r}]"
    )


CHECKS = {LABEL: _wrong_label, MARGIN: _wrong_margin, LABELS: _wrong_labels}
"""Columns that hold no text."""
