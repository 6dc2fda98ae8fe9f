"""What rewards ask of a host: to load reward functions, and to call them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import MortalError, RewardError, WorkerLostError
from mortal_steps.hosts.process import HostLostError, HostProcess
from mortal_steps.rewards.calling import dispatch
from mortal_steps.rewards.calling.calls import (
    CallArguments,
    CallFailure,
    CallScores,
    Outcome,
    Outcomes,
)
from mortal_steps.rewards.calling.dispatch import timed_out
from mortal_steps.rewards.judge.place import JudgePlace
from mortal_steps.sandbox.places import PlaceSettings

HANDLER = "mortal_steps.rewards.host_handler:RewardHandler"
HAND_OVER_S = 60.0
"""How long the host may take to receive the arguments of a call."""
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
        sandbox: PlaceSettings | None = None,
        judge: JudgePlace | None = None,
        passed_on: Collection[str] = (),
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self._terms = dict(terms)
        self._before_start = before_start
        self._holds_sandboxes = sandbox is not None and sandbox.kind != "local"
        self.process = HostProcess(
            HANDLER,
            {
                "terms": {name: term.for_host() for name, term in terms.items()},
                "gym_rows": gym_rows,
                "sandbox": sandbox or PlaceSettings(),
                "judge": judge or JudgePlace(),
            },
            passed_on=passed_on,
            start_timeout_s=self.import_timeout_s,
        )
        self._rounds: list[list[str]] = []
        self._sent: CallArguments | None = None

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
            self._rounds = self.process.call(
                "rounds", returns=list[list[str]], timeout_s=self.import_timeout_s
            )
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
        return ", ".join(term.called for term in self._terms.values())

    def rounds(self) -> list[list[str]]:
        """Return in which order functions are called; those of one round are called together."""
        self.start()
        return self._rounds

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """Call functions of one round on the same completions, each for `timeout_s` at most, or for
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
            outcomes: dict[str, Outcome] = self.process.call(
                "call", returns=Outcomes, timeout_s=limit_s, names=names, limit_s=limit_s
            )
            if (wrong := _mismatch(outcomes, names, num_completions)) is not None:
                raise self.process.spoilt(wrong)
        except HostLostError as lost:
            self._sent = None
            if len(names) > 1:  # which of them it was shows when each is called alone
                alone = [self.call([name], arguments, timeout_s=timeout_s) for name in names]
                return dict(itertools.chain.from_iterable(each.items() for each in alone))
            took = time.monotonic() - started
            return {names[0]: replace(_failure(lost, limit_s), seconds=took)}
        if any(isinstance(outcome, CallFailure) for outcome in outcomes.values()):
            self._sent = None
        return {name: outcomes[name] for name in names}

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

    def _hand_over(self, arguments: CallArguments) -> None:
        """Let the host have the arguments, unless it has them."""
        self.start()
        if self._sent is arguments:
            return
        try:
            self._send(arguments)
        except HostLostError:  # it ended since the last call, which is nobody's failure
            self.start()
            self._send(arguments)
        self._sent = arguments

    def _send(self, arguments: CallArguments) -> None:
        self.process.call("receive", returns=None, timeout_s=HAND_OVER_S, arguments=arguments)


def _mismatch(
    outcomes: Mapping[str, Outcome], names: Sequence[str], num_completions: int
) -> str | None:
    """Return in what the outcomes do not fit the call, in words."""
    if set(outcomes) != set(names):
        return f"it is about {sorted(outcomes)} instead of {sorted(names)}"
    for outcome in outcomes.values():
        if isinstance(outcome, CallScores):
            columns = [outcome.scores, *outcome.extra.values()]
            if any(len(column) != num_completions for column in columns):
                return f"not every column of it has {num_completions} values"
    return None


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
