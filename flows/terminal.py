"""Flow runs that `mortal schedule` starts, in a terminal, are its own to stop."""

from __future__ import annotations

import os

VARIABLE = "MORTAL_SERVED"
"""Tells the flow's process that it is one of those. Its name is older than the command's: a process
that was started before that changed starts the flow runs of today."""


def leave_terminal() -> None:
    """Let Ctrl-C reach `mortal schedule` alone, which then cancels the run as Prefect does: a
    signal from the terminal beside it would count as the second one, which ends a run unsaved."""
    if os.environ.pop(VARIABLE, None) is not None:  # not for the processes that this one starts
        os.setpgid(0, 0)
