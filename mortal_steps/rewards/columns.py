"""The columns of a dataset with which built-in rewards compare completions."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.system.texts import cut

LONGEST_SHOWN = 80
"""Characters of a value in an error, at most."""
BESIDE_COLUMNS = frozenset({"completion_ids", "trainer_state", "log_extra", "log_metric"})
"""Arguments of reward functions besides the dataset's columns, prompts and completions."""


class DatasetRowError(ValueError):
    """A row of the dataset holds nothing with which a completion could be compared. This is not the
    fault of the completions, so they get no score. Like any other error of a reward function, it
    stops the run or masks the problem, as `rewards.on_error` says."""

    def __init__(self, *, column: str, row: int, value: object, wrong: str) -> None:
        shown = cut(repr(value), LONGEST_SHOWN)
        super().__init__(
            f"column {column!r} = {shown} in row {row} of the call {wrong}; correct that row of "
            "the dataset, or leave it out"
        )
        self.what = f"column {column!r} = {shown}, which {wrong}"
        self.row = row
        """Index of the completion within the call that the error is about."""


def column(columns: Mapping[str, Any], name: str, *, reward: str) -> Sequence[Any]:
    """Return the column with that name; raises `RewardError` if the dataset has none."""
    if name not in columns:
        there = ", ".join(sorted(set(columns) - BESIDE_COLUMNS))
        raise RewardError(
            f"the reward {reward!r} needs the column {name!r}, which the dataset does not have "
            f"(functions are given {there or 'no column'}); rename the dataset's column, or name "
            "it where the reward has a setting for it"
        )
    values: Sequence[Any] = columns[name]
    return values


def gold_text(value: object, *, column: str, row: int) -> str:
    """Return a right answer as text; raises `DatasetRowError` for other types."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, numbers.Number) and not isinstance(value, bool) and value == value:
        return str(value)
    # A missing value that pandas read is nan, which is a float that is not equal to itself.
    wrong = "is empty" if isinstance(value, str) else "is neither text nor a number"
    raise DatasetRowError(column=column, row=row, value=value, wrong=wrong)
