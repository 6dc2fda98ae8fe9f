"""Lets `mortal schedule`, run in a terminal, be the one that stops the flow runs it starts."""

from __future__ import annotations

import os

VARIABLE = "MORTAL_SERVED"
"""Set in the environment of those flow runs. Its name is older than the command, and is kept
because processes that were started before the change start today's flow runs."""


def leave_terminal() -> None:
    """Detach from the terminal, so that Ctrl-C reaches `mortal schedule` alone, which then cancels
    the run through Prefect.

    With a signal from the terminal as well, the cancellation would count as the second signal,
    which ends a run without saving it.
    """
    if os.environ.pop(VARIABLE, None) is not None:  # not for the processes that this one starts
        os.setpgid(0, 0)
