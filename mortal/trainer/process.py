"""The process that drives a run for a `MortalTrainer`: `python -m mortal.trainer.process`.

It reads a pickled `Request` from its standard input, and writes a pickled `Answer` to a descriptor
of its own. The end of its input means that its owner has ended, and has the effect of a Ctrl-C.
"""

import os
import pkgutil
import signal
import threading
from collections.abc import Mapping
from typing import Any

from mortal_steps.system.asked import answer_once
from mortal_steps.system.frames import Request
from mortal_steps.system.streams import let_go_of_terminals

ACTIONS: Mapping[str, str] = {
    "train": "mortal.driver:drive",
    "detach": "mortal.remote.detach:detach",
    "evaluate": "mortal.trainer.judging:evaluate",
    "evaluate_rows": "mortal.trainer.judging:evaluate_rows",
    "recipe": "mortal.drive_recipe:drive_recipe",
}
"""Functions by the names of the actions: what one needs is imported when it is asked for."""


def perform(action: str, arguments: Mapping[str, Any]) -> Any:
    """Perform an action with arguments by their names."""
    return pkgutil.resolve_name(ACTIONS[action])(**arguments)


def main() -> None:
    """Perform the request. The exit code is 0 whenever an answer was written."""
    answer_once(_perform)


def _perform(request: Request) -> Any:
    from mortal.terminal.output import warn_in_plain_lines

    threading.Thread(target=_watch_owner, daemon=True).start()
    warn_in_plain_lines()
    return perform(request.method, request.payload)


def _watch_owner() -> None:
    """Interrupt this process when its input ends. `sys.stdin` would hold a lock that an ending
    interpreter waits for, so the descriptor is read itself."""
    while os.read(0, 1):
        pass
    let_go_of_terminals()
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
