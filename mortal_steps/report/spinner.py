"""What is being done as long as there is no bar: a line that turns, on a terminal alone.

rich is imported where something turns: most commands have no need of it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


@functools.cache
def terminal() -> Console:
    """What a run's bar and spinner are shown on; lines that are printed through it stay above."""
    from rich.console import Console

    return Console(stderr=True, markup=False, emoji=False, highlight=False)


class Spinner:
    """One line that turns; there is room for one."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def show(self, text: str) -> None:
        """Turn, beside this text; nothing where there is no terminal."""
        if not sys.stderr.isatty():
            return
        from rich.status import Status
        from rich.text import Text

        line = Text(text, no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = Status(line, console=terminal())
            self._status.start()
        else:
            self._status.update(line)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Out of the way of what is printed in the block."""
        if self._status is None:
            yield
            return
        self._status.stop()
        try:
            yield
        finally:
            self._status.start()

    def stop(self) -> None:
        """Leave the terminal to others."""
        if self._status is not None:
            self._status.stop()
            self._status = None


spinner = Spinner()
"""Of this process."""
