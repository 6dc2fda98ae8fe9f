"""An episode while it is played, and all of a shard's, round by round."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NoReturn

from mortal_steps.environments.gateway.conversation import Conversation
from mortal_steps.environments.messages import AGENT, EpisodeKey
from mortal_steps.environments.processes.faults import REMEDIES, Fault
from mortal_steps.environments.processes.waiting import Watch
from mortal_steps.errors import DataError
from mortal_steps.rollout.http.messages import Answer, Asked, RefusedError

Waiting = Future[Answer]


@dataclass(kw_only=True)
class _Pending:
    """A request without an answer."""

    digest: str
    waiting: list[Waiting] = field(default_factory=list)


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
    attempt: int = 0
    """How often its code has begun; what an earlier attempt asks is not heeded."""
    is_late: bool = False
    """Whether its code was stopped because it took too long."""
    began_at: float = math.inf
    """Since when it is its code's turn; `inf` while it is not."""
    own_seconds: float = 0.0
    """What its code has taken, without waiting for the model."""
    _answers: dict[str, Answer] = field(default_factory=dict)
    _asked_again: set[str] = field(default_factory=set)

    @property
    def key(self) -> EpisodeKey:
        return self.conversation.running.key, self.conversation.running.index

    def begin(self) -> None:
        """Take note that its code begins, maybe again."""
        with self.changed:
            self.attempt += 1
            self._asked_again.clear()
            self.is_late = False
            self._start_clock()

    def ask(self, asked: Asked, attempt: int) -> Waiting:
        """Return where the answer will be.

        Its code has `timeout_s` from one answer to the next new request: one that was answered
        before in the same attempt, or is refused, is no new one. Raises `RefusedError`.
        """
        waiting, digest = Waiting(), asked.digest
        waiting.set_running_or_notify_cancel()  # a client that goes away changes nothing
        with self.changed:
            if attempt != self.attempt:
                raise RefusedError("this attempt has ended", status=503)
            is_new = digest not in self._asked_again
            self._asked_again.add(digest)
            if digest in self._answers:
                waiting.set_result(self._answers[digest])
                if is_new and self.pending is None:
                    self._start_clock()
                return waiting
            if self.pending is None:
                self._take(asked)
                self._stop_clock()
                self.pending = _Pending(digest=digest)
                self.changed.notify_all()
            elif self.pending.digest != digest:
                is_rerun = self.pending.digest not in self._asked_again
                how = "when it is run again" if is_rerun else "before it has its answer"
                remedy = "differs" if is_rerun else "in_turn"
                self._give_up(f"asks for something else {how}", remedy)
            self.pending.waiting.append(waiting)
        return waiting

    def answer(self) -> None:
        """Answer the request with what was sampled."""
        with self.changed:
            assert self.pending is not None
            pending, self.pending = self.pending, None
            answer = self._answers[pending.digest] = self.conversation.answer()
            self._start_clock()
            for each in pending.waiting:
                each.set_result(answer)

    def spoil(self, error: Exception) -> NoReturn:
        """Take note that a request cannot be answered, for a reason that is not its own; raise
        `RefusedError`."""
        with self.changed:
            self._give_up(f"a request could not be answered ({error!r})", "unusable")

    def check_heard(self) -> None:
        """Raise a `Fault` if its code has ended without waiting for an answer."""
        with self.changed:
            if self.pending is not None:
                how = "ended before the model had answered it"
                raise Fault(self.conversation.index, AGENT, how, REMEDIES["unheard"])

    def check_same(self) -> None:
        """Raise a `Fault` unless everything that was answered was asked for in this attempt."""
        missing = len(self._answers.keys() - self._asked_again)
        if missing:
            how = (
                f"asks for something else when it is run again: {missing} of "
                f"{len(self._answers)} earlier requests were not made first"
            )
            raise Fault(self.conversation.index, AGENT, how, REMEDIES["differs"])

    def rest(self) -> None:
        """Take note that its code does not run, and may begin again."""
        with self.changed:
            self._stop_clock()

    def end(self) -> None:
        """Take note that its code has ended, for good."""
        with self.changed:
            self._stop_clock()
            self.is_played = True
            self.changed.notify_all()

    def release(self) -> None:
        """Answer all who still wait with an error."""
        pending, self.pending = self.pending, None
        for waiting in pending.waiting if pending is not None else ():
            waiting.set_exception(RefusedError("the episode has ended", status=503))

    @property
    def goes_on(self) -> bool:
        """Whether its code still runs, or has asked for something before it ended."""
        return self.pending is not None or not self.is_played

    def _take(self, asked: Asked) -> None:
        try:
            self.check_same()
            self.conversation.take(asked)
        except Fault as fault:
            self.fault = fault
            self.stop_playing()
            raise RefusedError(fault.reason) from None
        except DataError as error:
            self._give_up(str(error), "unusable")
        except RefusedError as refused:
            if refused.stop:
                self.refused = str(refused)
                self.conversation.running.stop = refused.stop
            raise
        self.refused = ""

    def _give_up(self, how: str, remedy: str) -> NoReturn:
        self.fault = Fault(self.conversation.index, AGENT, how, REMEDIES[remedy])
        self.stop_playing()
        raise RefusedError(self.fault.reason)

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

    def wait(self, watch: Watch) -> Sequence[Session]:
        """Wait until each episode has asked or has ended; return those that ask, in the order of
        the shard. Code that takes too long is stopped meanwhile, and `watch` told who is waited
        for."""
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
                if watch.next_at <= now:
                    watch.tell({each.key for each in self._all} - {each.key for each in silent})
                ends = min(each.began_at for each in silent) + self._timeout_s
                self.changed.wait(max(0.0, min(watch.next_at, ends) - now))

    def close(self) -> None:
        """Answer all who still wait with an error."""
        with self.changed:
            for each in self._all:
                each.release()
