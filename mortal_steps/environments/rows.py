"""Rows that environments bring themselves, as those of `data.source = "environment"`."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mortal_steps.config import EnvironmentConfig, ModalConfig, RewardTerm
from mortal_steps.data.values import as_json
from mortal_steps.environments.inside.streams import RandomStream
from mortal_steps.environments.processes.host import START_S, environment_host

HANDLER = "mortal_steps.environments.rows:RowsHandler"
ROWS_AT_ONCE = 1000
Row = dict[str, Any]


class RowsHandler:
    """Yields the rows, in the environments' process."""

    def __init__(self, *, environment: EnvironmentConfig, terms: Mapping[str, RewardTerm]) -> None:
        self._environment = environment
        self._rows: Iterator[Mapping[str, Any]] = iter(())
        self._stream = RandomStream(0)

    def begin(self, *, held_out: bool, limit: int | None) -> None:
        """Begin with the first row. Raises `ConfigError` and `DataError`."""
        with self._stream.used():
            self._rows = iter(self._environment.rows(held_out=held_out, limit=limit))

    def more(self) -> list[Row]:
        """Return the next rows, none at the end. Raises `DataError`."""
        with self._stream.used():
            rows = list(itertools.islice(self._rows, ROWS_AT_ONCE))
        return [as_json(row, "a row of the environment") for row in rows]


class RowReader:
    """A worker that reads the rows, before there is a run."""

    def __init__(
        self,
        *,
        environment: EnvironmentConfig,
        passed_on: Collection[str],
        modal: ModalConfig | None = None,
    ) -> None:
        self._environment = environment
        self._where: dict[str, Any] = {"passed_on": passed_on, "modal": modal}

    def read(self, *, held_out: bool, limit: int | None) -> list[Row]:
        """Return the first `limit` rows, or those to hold out. Raises `ConfigError` for an
        environment that cannot be loaded, `DataError` without such rows, `WorkerLostError`."""
        host = environment_host(self._environment, {}, handler=HANDLER, **self._where)
        try:
            host.call("begin", returns=None, timeout_s=START_S, held_out=held_out, limit=limit)
            rows: list[Row] = []
            while more := host.call("more", returns=list[Row], timeout_s=START_S):
                rows += more
            return rows
        finally:
            host.close()
