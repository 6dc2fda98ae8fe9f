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
class EpisodeSession:
    """An episode while it is played: its dialogue, and the requests that wait for the model.

    Its code may be run several times. A request that was answered before gets the same answer
    again, and all such requests must come before any new one.
    """

    conversation: Conversation
    changed: threading.Condition
    """Condition of all sessions of a shard; each change is made while it is held."""
    stop_playing: Callable[[], None] = lambda: None
    """Kills the process of the episode's code."""
    is_played: bool = False
    """Whether the episode's code has ended, for good."""
    fault: Fault | None = None
    """A fault of the episode's code that another attempt would repeat."""
    refused: str = ""
    """Why the model can say no more, once a request has found that out."""
    pending: _Pending | None = None
    attempt: int = 0
    """Times that the code has begun; requests of an earlier attempt are refused."""
    is_late: bool = False
    """Whether the episode's code was stopped because it took too long."""
    began_at: float = math.inf
    """Time (monotonic) since which the code's own turn lasts; `inf` while the model's does."""
    own_seconds: float = 0.0
    """Seconds that the code has taken, waits for the model not included."""
    _answers: dict[str, Answer] = field(default_factory=dict)
    _asked_again: set[str] = field(default_factory=set)

    @property
    def key(self) -> EpisodeKey:
        return self.conversation.running.key, self.conversation.running.index

    def begin(self) -> None:
        """Note that the episode's code begins, maybe again."""
        with self.changed:
            self.attempt += 1
            self._asked_again.clear()
            self.is_late, self.refused = False, ""
            self._start_clock()

    def ask(self, asked: Asked, attempt: int) -> Waiting:
        """Return the future that will hold the answer. Raises `RefusedError`.

        The code has `timeout_s` from one answer to its next new request. A request is not new if it
        was answered before in the same attempt, or is refused.
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
        """Note that a request cannot be answered for a reason outside of the request; raise
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
        """Note that the episode's code is not running, and may begin again."""
        with self.changed:
            self._stop_clock()

    def end(self) -> None:
        """Note that the episode's code has ended for good."""
        with self.changed:
            self._stop_clock()
            self.is_played = True
            self.changed.notify_all()

    def release(self) -> None:
        """Answer all waiting requests with an error."""
        pending, self.pending = self.pending, None
        for waiting in pending.waiting if pending is not None else ():
            waiting.set_exception(RefusedError("the episode has ended", status=503))

    @property
    def goes_on(self) -> bool:
        """Whether the episode's code still runs, or ended with a request that waits."""
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


class EpisodeSessions:
    """All episodes of a shard."""

    def __init__(self, timeout_s: float) -> None:
        """Let the code of an episode take `timeout_s` until it asks, asks again, or ends."""
        self.changed = threading.Condition(threading.RLock())
        self._timeout_s = timeout_s
        self._all: list[EpisodeSession] = []
        self.error: BaseException | None = None
        """The error that ended an episode and ends the shard."""

    def add(self, conversation: Conversation) -> EpisodeSession:
        """Return a new session for the conversation."""
        self._all.append(EpisodeSession(conversation=conversation, changed=self.changed))
        return self._all[-1]

    def fail(self, error: BaseException) -> None:
        """Have `wait` raise the error."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def wait(self, watch: Watch) -> Sequence[EpisodeSession]:
        """Wait until each episode has asked or has ended; return the sessions that ask, in the
        order of the shard. Meanwhile stop code that takes too long, and tell `watch` which episodes
        are waited for."""
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
        """Answer all waiting requests with an error."""
        with self.changed:
            for each in self._all:
                each.release()
