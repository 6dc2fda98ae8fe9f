"""Collects what TRL, transformers and PEFT warn of, for the user of the run.

What they say stands in the log of the process, too, which few people read.
"""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

LIBRARIES = ("trl", "transformers", "peft")
DEPRECATIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
"""They are about calls in the code of these libraries and of this one."""
ON_ONE_GPU = "already on multiple devices"
"""What transformers says of a model that was loaded onto the one GPU that trains it."""
NOT_NEWS = (
    "deprecated",
    "use_cache",
    "lr value before scheduler",
    "PAD/BOS/EOS tokens",
    ON_ONE_GPU,
)
"""Parts of messages about what these libraries do of themselves."""
FIRST_OF_ONE = "[RANK 0] "
"""What accelerate puts before the messages of TRL's trainers."""
MOST = 5
"""Warnings of one process that reach the user; the others are in its log."""
MOST_CHARS = 600


class LibraryWarnings(logging.Handler):
    """The libraries' warnings, each once: those that begin alike, up to numbers, are the same, as
    some end in a row's values."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._known: set[str] = set()
        self._new: list[str] = []

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        loggers = [logging.getLogger(name) for name in LIBRARIES]
        show = warnings.showwarning

        def shown(
            message: Warning | str, category: type[Warning], *where: Any, **rest: Any
        ) -> None:
            library = _caller()
            if library in LIBRARIES and not issubclass(category, DEPRECATIONS):
                self._add(library, str(message))
            show(message, category, *where, **rest)

        for logger in loggers:
            logger.addHandler(self)
        warnings.showwarning = shown
        try:
            yield
        finally:
            warnings.showwarning = show
            for logger in loggers:
                logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._add(record.name.partition(".")[0], record.getMessage())

    def take(self) -> tuple[str, ...]:
        """Return the warnings since the last call, such as `TRL: All reward functions ...`"""
        new, self._new = self._new, []
        return tuple(new)

    def _add(self, library: str, message: str) -> None:
        text = " ".join(message.removeprefix(FIRST_OF_ONE).split())
        warning = f"{library} warns: {text[:MOST_CHARS]}{' [...]' if text[MOST_CHARS:] else ''}"
        if any(part in text for part in NOT_NEWS) or gist(warning) in self._known:
            return
        if len(self._known) < MOST:
            self._known.add(gist(warning))
            self._new.append(warning)


def gist(warning: str) -> str:
    """Return what a warning has in common with others of its kind."""
    return "".join(letter for letter in warning if not letter.isdigit())[:80]


def _caller() -> str:
    """Return the package whose code has called `warnings.warn`, whichever line it blames."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
