"""The types of the columns that rows have for TRL."""

import pyarrow
import pytest
from datasets import Dataset

from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.rows.preparing import ROWS_AT_ONCE, dataset_of
from mortal_steps.types import Problem

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
    with pytest.raises(pyarrow.ArrowInvalid):
        dataset_of(problems({"messages": "b"}), tmp_path)
