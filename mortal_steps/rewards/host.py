"""Reward functions in a host: a process of their own that loads them and calls them."""

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import MortalError, RewardError, WorkerLostError
from mortal_steps.hosts.base import HostLostError, stack_of
from mortal_steps.hosts.process import HostProcess
from mortal_steps.rewards.calling import dispatch
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, CallScores, Outcome
from mortal_steps.rewards.calling.dispatch import ASYNC, WITH_ENVIRONMENTS
from mortal_steps.rewards.calling.failures import timed_out
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.sandbox.executors import ExecutorSettings

HANDLER = "mortal_steps.rewards.host_handler:RewardHandler"
HAND_OVER_S = 60.0
"""Seconds that the host may take to receive the arguments of a call."""
MODEL_TRIES = 2
RELEASE_S = 10.0
"""Seconds that a host may take to release what it holds elsewhere."""


class RewardHost:
    """Calls reward functions in a host, started at the first need and again after it was lost.
    `terms` gives what to load under each name.

    `gym_rows`: the rows come from reasoning_gym itself; `sandbox`: where programs run;
    `judge`: where judges keep what they paid for. The host sees the variables of the environment in
    `passed_on`, credentials or not, and has `variables`. `before_start` is called before each
    start. `python` is its interpreter, if it is another.
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
        python: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._terms = dict(terms)
        self.takes_prompt_ids = any(term.takes_prompt_ids for term in terms.values())
        """Whether it is given the token ids of prompts, as teachers are."""
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
            before_start=before_start,
            python=python,
            variables=variables,
            start_timeout_s=self.import_timeout_s,
        )
        self._sent: CallArguments | None = None
        self._traits: Mapping[str, Sequence[str]] | None = None

    def start(self) -> None:
        """Start the host, unless it runs; raises `RewardError` if a function cannot be imported,
        and `WorkerLostError` if something kills the process meanwhile."""
        if self.process.is_running():
            return
        self._sent = None
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

    def async_of(self, names: Sequence[str]) -> list[str]:
        """Return the functions that run beside each other; none if the host was lost."""
        return self._that_are(ASYNC, names) if len(names) > 1 else []

    def with_environments(self, names: Sequence[str]) -> list[str]:
        """Return those of the functions that take `environments`, which do not exist here."""
        return self._that_are(WITH_ENVIRONMENTS, names)

    def _that_are(self, trait: str, names: Sequence[str]) -> list[str]:
        if self._traits is None:
            self.start()
            with contextlib.suppress(HostLostError):  # the next call says so
                returns = dict[str, list[str]]
                self._traits = self.process.call("traits", returns=returns, timeout_s=HAND_OVER_S)
        return [name for name in names if name in (self._traits or {}).get(trait, ())]

    def call(
        self,
        names: Sequence[str],
        arguments: CallArguments,
        *,
        timeout_s: float,
        after: Sequence[str] = (),
    ) -> dict[str, Outcome]:
        """Call functions, each for `timeout_s` or its term's own limit; if the host is lost, each
        again alone with fresh arguments. Raises a function's `MortalError`.

        `after` names those that have changed their arguments before. As in TRL, the others see
        that: where arguments are fresh, they are called again first.
        """
        started = time.monotonic()
        count = len(arguments.problem_ids)
        limit_s = 0.0
        try:
            again = after if self._hand_over(arguments) else ()
            limits = {
                name: self._terms[name].time_limit_s(count, timeout_s) for name in (*again, *names)
            }
            limit_s = sum(limits.values())  # each may keep the others waiting
            started = time.monotonic()
            outcomes: dict[str, Outcome] = self.process.call(
                "call", returns=dict[str, Outcome], timeout_s=limit_s, limits=limits
            )
            self._check(outcomes, list(limits), count)
        except HostLostError as lost:
            self._sent = None
            if len(names) > 1:
                alone = (
                    self.call([name], arguments, timeout_s=timeout_s, after=after) for name in names
                )
                return {name: outcome for each in alone for name, outcome in each.items()}
            failure = replace(_failure(lost, limit_s), seconds=time.monotonic() - started)
            return {names[0]: failure}
        if any(isinstance(outcome, CallFailure) for outcome in outcomes.values()):
            self._sent = None
        lacking = [each for name in again if isinstance(each := outcomes[name], CallFailure)]
        return {name: lacking[0] if lacking else outcomes[name] for name in names}

    def _check(self, outcomes: Mapping[str, Outcome], names: Sequence[str], count: int) -> None:
        if list(outcomes) != list(names):
            raise self.process.spoilt(f"it has results of {', '.join(outcomes)}")
        for outcome in outcomes.values():
            if isinstance(outcome, CallScores):
                columns = [outcome.scores, *outcome.extra.values()]
                columns += [outcome.teacher_logprobs] if outcome.teacher_logprobs else []
                if any(len(column) != count for column in columns):
                    raise self.process.spoilt(f"not every column of it has {count} values")

    def release(self) -> None:
        """Before the end, let the host give back what no signal ends, such as Modal Sandboxes,
        which otherwise end by their own clocks."""
        if self._holds_sandboxes and self.process.is_running():
            with contextlib.suppress(MortalError):
                self.process.call("release", returns=None, timeout_s=RELEASE_S)

    def close(self) -> None:
        self._sent = None
        self.process.close()

    def _hand_over(self, arguments: CallArguments) -> bool:
        """Let the host have the arguments; return whether they are fresh."""
        self.start()
        if self._sent is arguments:
            return False
        receive = functools.partial(
            self.process.call,
            "receive",
            returns=None,
            timeout_s=HAND_OVER_S,
            arguments=arguments,
        )
        try:
            receive()
        except HostLostError:  # it ended since the last call, which is nobody's failure
            self.start()
            receive()
        self._sent = arguments
        return True


class ModelHost(RewardHost):
    """A host for one reward model or teacher. What ends it comes from outside, as no user's code
    runs in it: that is no failure of the completions, and never masks any."""

    import_timeout_s = 3600.0
    """It may have to come from the hub."""

    def call(
        self,
        names: Sequence[str],
        arguments: CallArguments,
        *,
        timeout_s: float,
        after: Sequence[str] = (),
    ) -> dict[str, Outcome]:
        """See `RewardHost.call`. A process that was ended is replaced once, for scoring again
        changes nothing; raises `WorkerLostError` if that one ends as well."""
        (name,) = names
        for tries_left in reversed(range(MODEL_TRIES)):
            outcomes = super().call(names, arguments, timeout_s=timeout_s, after=after)
            outcome = outcomes[name]
            if not (isinstance(outcome, CallFailure) and outcome.kind == "crash"):
                break
            if not tries_left:
                raise WorkerLostError(
                    f"the reward model {self._called()} {outcome.message}, {MODEL_TRIES} times in "
                    "a row; memory may have run out"
                )
        return outcomes


def _failure(lost: HostLostError, timeout_s: float) -> CallFailure:
    """Return what becomes of the call of one function in which the host was lost."""
    stack = stack_of(lost.stack, dispatch.__file__)
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
