"""What ties a flow run to whoever started it: their terminal, and what they read of its lines."""

import logging
import os

from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console

from mortal_steps.system.streams import lead_nowhere

VARIABLE = "MORTAL_SERVED"
"""Set in the environment of those flow runs. Its name is older than the command, and is kept
because processes that were started before the change start today's flow runs."""
CANCELLED = "Execution was cancelled by the runtime environment"
OF_A_STOP = (
    f"Crash detected! {CANCELLED}",
    f"Finished in state Crashed('{CANCELLED}",
    "Finished in state Cancelled(",
    "Finished in state Running()",
)
"""How Prefect's lines begin on the stages that a stop breaks off, and on the stop itself. The run
has told of it, so they are not printed; the Prefect UI has them."""


def stand_alone() -> None:
    """Go on whatever becomes of the process that started this one: see the functions below."""
    leave_terminal()
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            handler.addFilter(is_news)
            outlive_its_reader(handler.console)


def is_news(record: logging.LogRecord) -> bool:
    """Return whether the run has not told of it already."""
    return not record.getMessage().startswith(OF_A_STOP)


def leave_terminal() -> None:
    """Detach from the terminal, so that Ctrl-C reaches `mortal schedule` alone, which then cancels
    the run through Prefect. With a signal from the terminal as well, the cancellation would count
    as the second signal, which ends a run without saving it."""
    if os.environ.pop(VARIABLE, None) is not None:  # not for the processes that this one starts
        os.setpgid(0, 0)


def outlive_its_reader(console: Console) -> None:
    """Print nothing more once nobody reads it: a worker that was killed, `tee` after a Ctrl-C. rich
    would end the process, and with it a run that has all its lines in its log."""

    def go_on() -> None:
        console.quiet = True
        lead_nowhere(console.file)

    console.on_broken_pipe = go_on  # type: ignore[method-assign]
