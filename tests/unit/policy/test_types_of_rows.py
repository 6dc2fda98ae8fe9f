"""The types of the columns that rows have for TRL."""

import pytest
from datasets import Dataset

from mortal_steps.data.problem_files import ProblemFile, write_problems
from mortal_steps.errors import DataError
from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.rows.preparing import ROWS_AT_ONCE, dataset_of
from mortal_steps.types import Problem
from tests.support.refused import refused

LAST = ROWS_AT_ONCE + 2
"""`datasets` has taken the types from the rows before it."""


def problems(last):
    """Rows with a message each; the last one of them says more."""
    rows = [{"messages": [{"role": "user", "content": "a"}]} for _ in range(LAST)]
    return [Problem(id=f"{i}", prompt="p", columns=row) for i, row in enumerate([*rows, last])]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "b", "tool_calls": [{"name": "f"}]},
        {"role": "user", "content": None},
    ],
)
def test_they_are_those_of_all_rows(message, tmp_path):
    rows = problems({"messages": [message]})
    found, expected = dataset_of(rows, tmp_path), Dataset.from_list(list(map(row_of, rows)))
    assert found.features == expected.features
    assert [found[at] for at in (0, LAST)] == [expected[at] for at in (0, LAST)]


def test_rows_of_different_kinds_are_refused(tmp_path):
    with refused(DataError, "column 'messages': its values are of no one type"):
        dataset_of(problems({"messages": "b"}), tmp_path)


def test_a_bad_row_after_one_of_other_types_is_named(tmp_path):
    """The rows before it are in the first part that is written, and do not fit into the types."""
    texts = [{"text": "a", "note": {"a": 1}}] * ROWS_AT_ONCE
    rows = [*texts, *[{"text": "a", "note": {"b": 1}}] * ROWS_AT_ONCE, {"text": None, "note": None}]
    given = [Problem(id=f"{i}", prompt="p", columns=row) for i, row in enumerate(rows)]
    with refused(DataError, f"row {len(rows) - 1}: its column 'text' is missing"):
        dataset_of(given, tmp_path, ("text",))


@pytest.mark.parametrize("values", [(*range(LAST), "x"), (1, 12345678901234567890123)])
def test_a_column_of_several_types_is_named_though_nothing_is_learned_from_it(values, tmp_path):
    rows = [Problem(id=f"{n}", prompt="p", columns={"note": each}) for n, each in enumerate(values)]
    write_problems(tmp_path / "rows.arrow", rows)
    read = ProblemFile(tmp_path / "rows.arrow")  # a list of problems is written row by row
    with refused(DataError, "column 'note'", "data.drop_columns = ['note']"):
        dataset_of(read, tmp_path)
