"""The reward host as its owner sees it: a process that is watched, killed and replaced.

A reward function may hang while it holds the interpreter (a regular expression that backtracks for
hours does), end its process, or be killed for its memory. So functions run in a process of their
own, and the clock that limits them runs in this one. Between the two stands a warden (warden.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import MortalError, RewardError, WorkerLostError
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, Outcome
from mortal_steps.rewards.host.loss import SPOILT, HostLost, ending, failure, stack_of
from mortal_steps.rewards.host.visible import visible_environment
from mortal_steps.rewards.host.wire import (
    LARGEST_ANSWER,
    HostAnswer,
    NoAnswerError,
    checked_outcomes,
    decode_answer,
    raised,
)
from mortal_steps.rewards.judge.place import JudgePlace
from mortal_steps.sandbox.places import PlaceSettings
from mortal_steps.system.frames import HEADER, Request, received, send_frame

HAND_OVER_S = 60.0
"""How long the host may take to receive the arguments of a call."""

GRACE_S = 0.5
"""What a call may take beyond its timeout: async functions are cancelled from inside at theirs."""

EXIT_S = 5.0
"""How long a host that closed its connection, and what it has started, may take to be gone."""

RELEASE_S = 10.0
"""How long a host may take to give back what it holds elsewhere."""

WARDEN = "mortal_steps.rewards.host.warden"


class HostProcess:
    """Runs reward functions in a process of their own, started at the first need and again after
    it was lost. `terms` gives what to load under each name.

    `gym_rows`: the rows come from reasoning_gym itself; `sandbox`: where programs run;
    `judge`: where judges keep what they paid for. Of the environment, what drives the run and its
    credentials are left out, but for the names in `passed_on`. `before_start` is called before each
    start.

    On Linux the host ends with the thread that started it, so one thread uses this, to its end.
    """

    import_timeout_s = 600.0
    """How long importing the functions may take; one may load a model there."""

    def __init__(
        self,
        terms: Mapping[str, RewardTerm],
        *,
        gym_rows: bool = False,
        sandbox: PlaceSettings | None = None,
        judge: JudgePlace | None = None,
        passed_on: Collection[str] = (),
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self._terms = dict(terms)
        self._gym_rows = gym_rows
        self._sandbox = sandbox or PlaceSettings()
        self._judge = judge or JudgePlace()
        self._passed_on = frozenset(passed_on)
        self._before_start = before_start
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._turns: list[list[str]] = []
        self._taken: CallArguments | None = None

    def start(self) -> None:
        """Start the process, unless it runs; raises `RewardError` if a function cannot be imported,
        and `WorkerLostError` if something kills the process meanwhile.

        What it prints goes where the output of this process goes.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        if self._before_start is not None:
            self._before_start()
        self._launch()
        try:
            self._ask(
                "load",
                self.import_timeout_s,
                terms={name: term.for_host() for name, term in self._terms.items()},
                stacks=self._stacks.fileno(),
                gym_rows=self._gym_rows,
                sandbox=self._sandbox,
                judge=self._judge,
            )
            self._turns = [
                list(turn) for turn in self._ask("turns", self.import_timeout_s).turns or ()
            ]
        except HostLost as lost:
            if lost.how == "SIGKILL":  # which no module does to itself
                raise WorkerLostError(
                    f"the reward host was killed (SIGKILL) while it imported "
                    f"{self._called()}; memory may have run out"
                ) from None
            how = lost.how or f"still running after {self.import_timeout_s:g} s"
            raise RewardError(
                f"[rewards]: importing {self._called()} ended the "
                f"process ({how}); a module must not end it when it is imported\n{lost.stack}"
            ) from None
        except MortalError:
            self.close()
            raise

    def _called(self) -> str:
        return ", ".join(term.called for term in self._terms.values())

    def _launch(self) -> None:
        with contextlib.ExitStack() as opened:
            try:
                ours, theirs = map(opened.enter_context, socket.socketpair())
                stacks = opened.enter_context(tempfile.TemporaryFile())
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", WARDEN, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), stacks.fileno()),
                    env=visible_environment(os.environ, self._passed_on),
                    start_new_session=True,  # a group of its own
                )
            except OSError as error:
                raise WorkerLostError(
                    f"the reward host could not be started: {error}; the machine may be short of "
                    "processes, descriptors, memory, or room in its temporary folder"
                ) from None
            theirs.close()
            self._connection, self._stacks = ours, stacks
            opened.pop_all()

    def turns(self) -> list[list[str]]:
        """In which order functions are called; those of one turn are called together."""
        self.start()
        return self._turns

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """Call functions of one turn on the same completions, each for `timeout_s` at most, or for
        as long as its term says.

        After a failure the next call gets its arguments afresh. Raises the `MortalError` that a
        function raised.
        """
        started = time.monotonic()
        num_completions = len(arguments.problem_ids)
        limit_s = max(self._terms[n].time_limit_s(num_completions, timeout_s) for n in names)
        try:
            self._hand_over(arguments)
            started = time.monotonic()
            answer = self._ask("call", limit_s + GRACE_S, names=names, timeout_s=limit_s)
            outcomes = self._outcomes(answer, names, arguments)
        except HostLost as lost:
            if len(names) > 1:  # which of them it was shows when each is called alone
                alone = [self.call([name], arguments, timeout_s=timeout_s) for name in names]
                return dict(itertools.chain.from_iterable(each.items() for each in alone))
            took = time.monotonic() - started
            return {names[0]: replace(failure(lost, limit_s), seconds=took)}
        if any(isinstance(outcome, CallFailure) for outcome in outcomes.values()):
            self._taken = None
        return outcomes

    def release(self) -> None:
        """Before the end: let the host give back what no signal ends, such as Modal Sandboxes.

        A host that does not answer in time is left to itself, and they end by their own clocks.
        """
        if (
            self._sandbox.kind == "local"
            or self._process is None
            or self._process.poll() is not None
        ):
            return
        with contextlib.suppress(HostLost, MortalError):
            self._ask("release", RELEASE_S)

    def close(self) -> None:
        """End the process and all that it started."""
        process, self._process, self._taken = self._process, None, None
        if process is None:
            return
        if sys.platform == "linux":  # the warden ends everybody, wherever they have gone
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_S)
        if process.returncode in (None, -signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # should a function have moved it to another group
            process.wait()
        self._connection.close()
        self._stacks.close()

    def _hand_over(self, arguments: CallArguments) -> None:
        """Let the host have the arguments, unless it has them."""
        self.start()
        if self._taken is arguments:
            return
        try:
            self._ask("take", HAND_OVER_S, arguments=arguments)
        except HostLost:  # it ended since the last call, which is nobody's failure
            self.start()
            self._ask("take", HAND_OVER_S, arguments=arguments)
        self._taken = arguments

    def _ask(self, method: str, within_s: float, **payload: Any) -> HostAnswer:
        return self._exchange(
            Request(number=next(self._numbers), method=method, payload=payload), within_s
        )

    def _exchange(self, request: Request, timeout_s: float) -> HostAnswer:
        """The host's answer; raises the error it answers with, or `HostLost` without an answer
        within `timeout_s`."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        self._connection.settimeout(timeout_s)
        try:
            send_frame(self._connection, request)
            (length,) = HEADER.unpack(
                received(self._connection, HEADER.size, self._process, deadline)
            )
            if length > LARGEST_ANSWER:
                raise NoAnswerError(f"it is {length} bytes long")
            answer = decode_answer(
                received(self._connection, length, self._process, deadline), request.number
            )
            error = raised(answer.error) if answer.error is not None else None
        except NoAnswerError as wrong:
            raise self._lost(None, f"{SPOILT}: {wrong}") from None
        except TimeoutError:
            raise self._lost(None) from None
        except (EOFError, ConnectionError):
            raise self._lost(self._process) from None
        except BaseException:
            self.close()  # its answer to this would be taken for the answer to the next call
            raise
        if error is not None:
            raise error
        return answer

    def _outcomes(
        self, answer: HostAnswer, names: Sequence[str], arguments: CallArguments
    ) -> dict[str, Outcome]:
        try:
            return checked_outcomes(answer, names, len(arguments.problem_ids))
        except NoAnswerError as wrong:
            raise self._lost(None, f"{SPOILT}: {wrong}") from None

    def _lost(self, ended: subprocess.Popen[bytes] | None, how: str | None = None) -> HostLost:
        """End what is left of the host and tell how it was lost; `ended`: it ended by itself."""
        if ended is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended.wait(EXIT_S)
            how = ending(ended.returncode)
        stack = stack_of(os.pread(self._stacks.fileno(), 1 << 20, 0).decode(errors="replace"))
        self.close()
        return HostLost(how, stack)
