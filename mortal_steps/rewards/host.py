"""Reward functions in a host: a process of their own that loads them and calls them."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import MortalError, RewardError, WorkerLostError
from mortal_steps.hosts.process import HostLostError, HostProcess
from mortal_steps.rewards.calling import dispatch
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, CallScores, Outcome
from mortal_steps.rewards.calling.dispatch import timed_out
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.sandbox.executors import ExecutorSettings

HANDLER = "mortal_steps.rewards.host_handler:RewardHandler"
HAND_OVER_S = 60.0
"""How long the host may take to receive the arguments of a call."""
MODEL_TRIES = 2
RELEASE_S = 10.0
"""How long a host may take to give back what it holds elsewhere."""


class RewardHost:
    """Calls reward functions in a host, started at the first need and again after it was lost.
    `terms` gives what to load under each name.

    `gym_rows`: the rows come from reasoning_gym itself; `sandbox`: where programs run;
    `judge`: where judges keep what they paid for. The host sees the variables of the environment in
    `passed_on`, credentials or not. `before_start` is called before each start.
    """

    import_timeout_s = 600.0
    """How long importing the functions may take; one may load a model there."""

    def __init__(
        self,
        terms: Mapping[str, RewardTerm],
        *,
        gym_rows: bool = False,
        sandbox: ExecutorSettings | None = None,
        judge: JudgedRun | None = None,
        passed_on: Collection[str] = (),
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self._terms = dict(terms)
        self._before_start = before_start
        self._holds_sandboxes = sandbox is not None and sandbox.kind != "local"
        self.process = HostProcess(
            HANDLER,
            {
                "terms": dict(terms),
                "gym_rows": gym_rows,
                "sandbox": sandbox or ExecutorSettings(),
                "judge": judge or JudgedRun(),
            },
            passed_on=passed_on,
            start_timeout_s=self.import_timeout_s,
        )
        self._sent: CallArguments | None = None
        self._beside: set[str] = set()
        """Functions that run at the same time: nobody knows which of them ended the host."""

    def start(self) -> None:
        """Start the host, unless it runs; raises `RewardError` if a function cannot be imported,
        and `WorkerLostError` if something kills the process meanwhile."""
        if self.process.is_running():
            return
        self._sent = None
        if self._before_start is not None:
            self._before_start()
        try:
            self.process.start()
        except HostLostError as lost:
            if lost.how == "SIGKILL":  # which no module does to itself
                raise WorkerLostError(
                    f"the reward host was killed (SIGKILL) while it imported "
                    f"{self._called()}; memory may have run out"
                ) from None
            raise RewardError(
                f"[rewards]: importing {self._called()} ended the "
                f"process ({lost.how}); a module must not end it when it is imported\n{lost.stack}"
            ) from None

    def _called(self) -> str:
        return ", ".join(term.full_name for term in self._terms.values())

    def begin(self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float) -> None:
        """Hand over the arguments with which all these functions will be called: the async ones of
        them run beside each other from the first `call` of one on."""
        count = len(arguments.problem_ids)
        limits = {name: self._terms[name].time_limit_s(count, timeout_s) for name in names}
        with contextlib.suppress(HostLostError):  # `call` tries again, and says so
            self._hand_over(arguments, limits)

    def call(self, name: str, arguments: CallArguments, *, timeout_s: float) -> Outcome:
        """Call a function for `timeout_s` at most, or for as long as its term says.

        After a failure the next call gets its arguments afresh. Raises the `MortalError` that the
        function raised.
        """
        started = time.monotonic()
        num_completions = len(arguments.problem_ids)
        limit_s = self._terms[name].time_limit_s(num_completions, timeout_s)
        try:
            self._hand_over(arguments)
            started = time.monotonic()
            outcome: Outcome = self.process.call(
                "call", returns=Outcome, timeout_s=limit_s, name=name, limit_s=limit_s
            )
            if isinstance(outcome, CallScores) and any(
                len(column) != num_completions
                for column in (outcome.scores, *outcome.extra.values())
            ):
                raise self.process.spoilt(f"not every column of it has {num_completions} values")
        except HostLostError as lost:
            if name in self._beside:
                self._beside, self._sent = set(), None
                return self.call(name, arguments, timeout_s=timeout_s)  # alone
            outcome = replace(_failure(lost, limit_s), seconds=time.monotonic() - started)
        self._beside.discard(name)
        if isinstance(outcome, CallFailure):
            self._sent = None
        return outcome

    def release(self) -> None:
        """Before the end: let the host give back what no signal ends, such as Modal Sandboxes.

        A host that does not answer in time is left to itself, and they end by their own clocks.
        """
        if self._holds_sandboxes and self.process.is_running():
            with contextlib.suppress(MortalError):
                self.process.call("release", returns=None, timeout_s=RELEASE_S)

    def close(self) -> None:
        """End the process and all that it started."""
        self._sent = None
        self.process.close()

    def _hand_over(
        self, arguments: CallArguments, together: Mapping[str, float] | None = None
    ) -> None:
        """Let the host have the arguments, unless it has them."""
        self.start()
        if self._sent is arguments:
            return
        content = {"arguments": arguments, "together": together or {}}
        receive = functools.partial(
            self.process.call, "receive", returns=list[str], timeout_s=HAND_OVER_S, **content
        )
        try:
            beside = receive()
        except HostLostError:  # it ended since the last call, which is nobody's failure
            self.start()
            beside = receive()
        self._sent = arguments
        if together is not None:
            self._beside = set(beside)


class ModelHost(RewardHost):
    """A host for one reward model. What ends it comes from outside, as no user's code runs in it:
    that is no failure of the completions, and never masks any."""

    import_timeout_s = 3600.0
    """It may have to come from the hub."""

    def call(self, name: str, arguments: CallArguments, *, timeout_s: float) -> Outcome:
        """See `RewardHost.call`. A process that was ended is replaced once, for scoring again
        changes nothing; raises `WorkerLostError` if that one ends as well."""
        for tries_left in reversed(range(MODEL_TRIES)):
            outcome = super().call(name, arguments, timeout_s=timeout_s)
            if not (isinstance(outcome, CallFailure) and outcome.kind == "crash"):
                break
            if not tries_left:
                raise WorkerLostError(
                    f"the reward model {self._called()} {outcome.message}, {MODEL_TRIES} times in "
                    "a row; memory may have run out"
                )
        return outcome


def _failure(lost: HostLostError, timeout_s: float) -> CallFailure:
    """Return what becomes of the call of one function in which the host was lost."""
    stack = stack_of(lost.stack)
    if lost.why == "timeout":
        return timed_out(timeout_s, stack)
    spoilt = lost.why == "spoilt"
    return CallFailure(
        kind="crash",
        message=lost.how if spoilt else f"ended its process ({lost.how})",
        remedy="Functions must leave the descriptors of their process alone."
        if spoilt
        else "Faults in native code do so, and SIGKILL may mean that memory ran out.",
        trace=stack,
    )


def stack_of(dump: str) -> str:
    """Return the calls inside the reward function, innermost first, from what faulthandler wrote.

    One block per thread, the newest thread first; the one that called a function has a frame of
    dispatch.py.
    """
    for block in dump.split("\n\n"):
        frames = [line for line in block.splitlines() if line.startswith("  File ")]
        ours = [number for number, line in enumerate(frames) if dispatch.__file__ in line]
        if ours:
            return "\n".join(["Where it was, innermost call first:", *frames[: ours[0]]])
    return ""
