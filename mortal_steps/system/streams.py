"""Standard streams that nobody reads any more, as of a terminal that was closed."""

import os
from collections.abc import Iterable
from typing import IO

TERMINALS = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]
"""As this process began: a terminal that is gone is none any more."""


def lead_nowhere(stream: IO[str]) -> None:
    """From now on, lose what is written to the stream; what it still holds is flushed there."""
    _replace([stream.fileno()])


def let_go_of_terminals() -> None:
    """From now on, lose what would be written to a terminal: after SIGHUP that would fail."""
    _replace(TERMINALS)


def _replace(descriptors: Iterable[int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
