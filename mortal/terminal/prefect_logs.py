"""Prefect's log lines on the terminal, without those that `mortal` says itself, and better."""

from __future__ import annotations

import logging
import sys

from prefect.logging.handlers import PrefectConsoleHandler

from mortal_flows.terminal import outlive_its_reader
from mortal_steps.report.progress import terminal

TOLD_ALREADY = (
    # The error that ends the run, with its traceback; twice.
    "Encountered exception during execution",
    "Finished in state Failed('Flow run encountered",
)
"""How the lines begin that are left out; the Prefect UI has them."""


def calm_console() -> None:
    """Leave out what is told already, and keep the other lines above the progress bar."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            handler.addFilter(is_news)
            if sys.stderr.isatty():
                handler.console = terminal()
            outlive_its_reader(handler.console)


def is_news(record: logging.LogRecord) -> bool:
    """Return whether `mortal` does not say it anyway."""
    message = record.getMessage()
    if record.name == "prefect.engine" and message.startswith("View at "):
        return False  # the flow run's own logger gives the same address
    return not message.startswith(TOLD_ALREADY)
