"""Flow runs that `mortal serve` starts, in a terminal, are its own to stop."""

from __future__ import annotations

import os

VARIABLE = "MORTAL_SERVED"
"""Tells the flow's process that it is one of those."""


def leave_terminal() -> None:
    """Let Ctrl-C reach `mortal serve` alone, which then cancels the run as Prefect does: a signal
    from the terminal beside it would count as the second one, which ends a run unsaved."""
    if os.environ.pop(VARIABLE, None) is not None:  # not for the processes that this one starts
        os.setpgid(0, 0)
