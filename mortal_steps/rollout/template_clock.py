"""What chat templates are told when they ask for the time.

Templates call `strftime_now`, and from version 5.22 on transformers gives them nothing but data, so
no function in its place. The clock behind it is exchanged instead: the name `datetime` in
transformers' `utils.chat_template_utils`, which serves nothing else there (5.17.0 to 5.24.0).
"""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from contextvars import ContextVar

Clock = Callable[[str], str]
"""Formats the time as `strftime` does."""

_asked: ContextVar[Clock] = ContextVar("_asked")


class _ClockOfThread:
    """Stands for the class `datetime`."""

    def now(self) -> "_ClockOfThread":
        return self

    def strftime(self, form: str) -> str:
        clock = _asked.get(None)
        return datetime.datetime.now().strftime(form) if clock is None else clock(form)


@contextlib.contextmanager
def template_clock(clock: Clock | None) -> Iterator[None]:
    """In the block, chat templates that this thread renders ask this clock, or the machine's."""
    if clock is None:
        yield
        return
    from transformers.utils import chat_template_utils  # imported where used: takes a second

    if not isinstance(chat_template_utils.datetime, _ClockOfThread):
        chat_template_utils.datetime = _ClockOfThread()
    before = _asked.set(clock)
    try:
        yield
    finally:
        _asked.reset(before)
