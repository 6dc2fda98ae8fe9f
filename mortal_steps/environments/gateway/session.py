"""An episode while it is played, and all of a shard's, round by round."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from mortal_steps.environments.faults import REMEDIES, Fault
from mortal_steps.environments.gateway.conversation import (
    Answer,
    Asked,
    Conversation,
    RefusedError,
)
from mortal_steps.errors import DataError

Waiting = Future[Answer]
LOOK_EVERY_S = 60.0
"""How often to look at the clocks, at least."""


@dataclass(kw_only=True)
class _Pending:
    """A request without an answer."""

    asked: Asked
    digest: str
    waiting: list[Waiting]


@dataclass(kw_only=True)
class Session:
    """An episode while it is played: its dialogue, and who waits for the model.

    Its code may be run several times. What was answered before is then answered again in the same
    way, and must be asked for again before anything else is.
    """

    conversation: Conversation
    changed: threading.Condition
    """Of all sessions of a shard: each change is made with it."""
    stop_playing: Callable[[], None] = lambda: None
    """Has the process of its code killed."""
    is_played: bool = False
    """Whether its code has ended, for good."""
    fault: Fault | None = None
    """What its code did that another attempt would do again."""
    refused: str = ""
    """Why the model can say no more, once a request found that out."""
    pending: _Pending | None = None
    is_late: bool = False
    """Whether its code was stopped because it took too long."""
    began_at: float = math.inf
    """Since when it is its code's turn; `inf` while it is not."""
    own_seconds: float = 0.0
    """What its code has taken, without waiting for the model."""
    _queue: deque[_Pending] = field(default_factory=deque)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _asked_again: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Take note that its code begins, maybe again."""
        with self.changed:
            self._queue.clear()
            self._asked_again.clear()
            self.is_late = False
            self._start_clock()

    def ask(self, asked: Asked) -> Waiting:
        """Return where the answer will be."""
        waiting, digest = Waiting(), asked.digest
        waiting.set_running_or_notify_cancel()  # a client that goes away changes nothing
        with self.changed:
            self._asked_again.add(digest)
            if digest in self._answers:
                waiting.set_result(self._answers[digest])
                if self.pending is None:
                    self._start_clock()
                return waiting
            for each in (*filter(None, [self.pending]), *self._queue):
                if each.digest == digest:
                    each.waiting.append(waiting)
                    return waiting
            self._queue.append(_Pending(asked=asked, digest=digest, waiting=[waiting]))
            self._take_next()
            self.changed.notify_all()
        return waiting

    def answer(self) -> None:
        """Answer the request with what was sampled, and turn to the next one."""
        with self.changed:
            assert self.pending is not None
            pending, self.pending = self.pending, None
            answer = self._answers[pending.digest] = self.conversation.answer()
            self._start_clock()
            for each in pending.waiting:
                each.set_result(answer)
            self._take_next()

    def check_same(self) -> None:
        """Raise a `Fault` unless everything that was answered was asked for in this attempt."""
        missing = len(self._answers.keys() - self._asked_again)
        if missing:
            how = (
                f"asks for something else when it is run again: {missing} of "
                f"{len(self._answers)} earlier requests were not made first"
            )
            raise Fault(self.conversation.index, "agent", how, REMEDIES["differs"])

    def end(self) -> None:
        """Take note that its code has ended, for good."""
        with self.changed:
            self._stop_clock()
            self.is_played = True
            self.changed.notify_all()

    def release(self) -> None:
        """Answer all who still wait with an error."""
        for each in (*filter(None, [self.pending]), *self._queue):
            for waiting in each.waiting:
                waiting.set_exception(RefusedError("the episode has ended", status=503))
        self.pending = None
        self._queue.clear()

    @property
    def goes_on(self) -> bool:
        """Whether its code still runs, or has asked for something before it ended."""
        return self.pending is not None or not self.is_played

    def _take_next(self) -> None:
        while self.pending is None and self._queue:
            pending = self._queue.popleft()
            try:
                self._take(pending)
            except RefusedError as refused:
                for each in pending.waiting:
                    each.set_exception(refused)
                self._start_clock()
            else:
                self._stop_clock()
                self.pending = pending

    def _take(self, pending: _Pending) -> None:
        try:
            self.check_same()
            self.conversation.take(pending.asked)
        except Fault as fault:
            self._give_up(fault)
        except DataError as error:
            remedy = REMEDIES["unusable"]
            self._give_up(Fault(self.conversation.index, "agent", str(error), remedy))
        except RefusedError as refused:
            if refused.stop:
                self.refused = str(refused)
                self.conversation.running.stop = refused.stop
            raise

    def _give_up(self, fault: Fault) -> None:
        self.fault = fault
        self.stop_playing()
        raise RefusedError(fault.reason)

    def _start_clock(self) -> None:
        self._stop_clock()
        self.began_at = time.monotonic()
        self.changed.notify_all()

    def _stop_clock(self) -> None:
        self.own_seconds += max(0.0, time.monotonic() - self.began_at)
        self.began_at = math.inf


class Sessions:
    """All episodes of a shard."""

    def __init__(self, timeout_s: float) -> None:
        """Let the code of an episode take `timeout_s` until it asks, asks again, or ends."""
        self.changed = threading.Condition(threading.RLock())
        self._timeout_s = timeout_s
        self._all: list[Session] = []
        self.error: BaseException | None = None
        """What ended an episode and ends the shard."""

    def add(self, conversation: Conversation) -> Session:
        """Return a new one."""
        self._all.append(Session(conversation=conversation, changed=self.changed))
        return self._all[-1]

    def fail(self, error: BaseException) -> None:
        """Have `wait` raise this."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def wait(self) -> Sequence[Session]:
        """Wait until each episode has asked or has ended; return those that ask, in the order of
        the shard. Code that takes too long is stopped meanwhile."""
        with self.changed:
            while True:
                if self.error is not None:
                    raise self.error
                live = [each for each in self._all if each.goes_on]
                silent = [each for each in live if each.pending is None]
                if not silent:
                    return live
                now = time.monotonic()
                for each in silent:
                    if each.began_at + self._timeout_s <= now:
                        each.is_late, each.began_at = True, math.inf
                        each.stop_playing()
                ends = min(each.began_at for each in silent) + self._timeout_s
                self.changed.wait(min(LOOK_EVERY_S, max(0.0, ends - now)))

    def close(self) -> None:
        """Answer all who still wait with an error."""
        with self.changed:
            for each in self._all:
                each.release()
