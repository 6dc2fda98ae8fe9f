"""A terminal that goes away (SIGHUP) while a run is still to be saved: writing to it would fail."""

from __future__ import annotations

import os

TERMINALS = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]
"""As this process began: a terminal that is gone is none any more."""


def let_go_of_terminals() -> None:
    """From now on, what would be written to a terminal goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in TERMINALS:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
