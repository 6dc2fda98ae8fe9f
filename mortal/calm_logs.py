"""Prefect's log lines on the terminal, without its alarm about a run that was asked to stop."""

from __future__ import annotations

import logging
import sys

from prefect.logging.handlers import PrefectConsoleHandler

from mortal_steps.report import progress

CANCELLED = "Execution was cancelled by the runtime environment"
FALSE_ALARMS = (
    f"Crash detected! {CANCELLED}",
    f"Finished in state Crashed('{CANCELLED}",
    "Finished in state Cancelled(",
)
"""How Prefect calls the stages that a stop breaks off, and the stop itself; `mortal` tells it."""


def calm_console() -> None:
    """Leave the false alarms out, and keep the other lines above the progress bar.

    The Prefect UI has all of them.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            handler.addFilter(is_no_false_alarm)
            if sys.stderr.isatty():
                handler.console = progress.console


def is_no_false_alarm(record: logging.LogRecord) -> bool:
    """Whether the line is about something that nobody asked for."""
    return not record.getMessage().startswith(FALSE_ALARMS)
