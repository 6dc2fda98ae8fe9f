"""The table of a run's metrics."""

from typing import Any

import pandas


class MetricsTable(pandas.DataFrame):  # type: ignore[misc]
    """One row for each step. What TRL's `train()` says of a whole run, such as `train_runtime`, is
    found by name as well: `metrics["train_runtime"]`."""

    def __getitem__(self, key: Any) -> Any:
        """Return a column, several of them, or a figure of the whole run."""
        if isinstance(key, str) and key not in self.columns and key in self.attrs:
            return self.attrs[key]
        return super().__getitem__(key)
