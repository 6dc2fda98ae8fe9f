"""The rewards' part of a host: loads reward functions and calls them.

Functions run in the main thread of the host; what async ones return is awaited in another. As in
TRL, the async functions of a shard are awaited beside each other, and all functions are given the
same lists: what one changes in them, the later ones see.
"""

import pickle
from collections.abc import Mapping
from dataclasses import replace

from mortal_steps.config import RewardTerm
from mortal_steps.rewards import functions as our_functions
from mortal_steps.rewards.calling.calls import CallArguments, CallScores, Outcome
from mortal_steps.rewards.calling.dispatch import (
    ASYNC,
    WITH_ENVIRONMENTS,
    begin_call,
    is_async,
    takes_environments,
)
from mortal_steps.rewards.calling.rows import with_own_rows
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.ledger import JudgedRun, use_run
from mortal_steps.rewards.loading import load_term
from mortal_steps.sandbox import executors
from mortal_steps.sandbox.executors import ExecutorSettings


class RewardHandler:
    """Holds the functions of a run and the completions they are called with. `terms` gives what to
    import under each name; `gym_rows`: the rows come from reasoning_gym itself; `sandbox`: where
    programs run; `judge`: where judges keep what they paid for."""

    def __init__(
        self,
        *,
        terms: Mapping[str, RewardTerm],
        gym_rows: bool,
        sandbox: ExecutorSettings,
        judge: JudgedRun,
    ) -> None:
        our_functions.trust_gym_rows(gym_rows)
        executors.use_settings(sandbox)
        use_run(judge)
        self._functions = {name: load_term(term) for name, term in terms.items()}
        self._arguments: CallArguments | None = None
        self._content: object = None
        for function in self._functions.values():
            if isinstance(function, RewardEnvironment):
                function.prepare()

    def release(self) -> None:
        """Let go what would outlive this process: sandboxes of a service."""
        executors.close()

    def traits(self) -> dict[str, list[str]]:
        """Return which functions run beside each other, and which take `environments`."""
        functions = self._functions.items()
        return {
            ASYNC: [name for name, function in functions if is_async(function)],
            WITH_ENVIRONMENTS: [name for name, each in functions if takes_environments(each)],
        }

    def receive(self, *, arguments: CallArguments) -> None:
        self._arguments = replace(arguments, by_name=with_own_rows(arguments.by_name))
        self._content = self._content_now()

    def call(self, *, limits: Mapping[str, float]) -> dict[str, Outcome]:
        """Call functions, each with its limit in seconds; raises their `MortalError`."""
        assert self._arguments is not None  # RewardHost calls `receive` before
        begun, changing = {}, set()
        for name, limit_s in limits.items():
            function = self._functions[name]
            begun[name] = begin_call(function, self._arguments, timeout_s=limit_s)
            before = self._content
            if not is_async(function):  # those run on beside each other, after all others
                self._content = self._content_now()
            if self._content != before:
                changing.add(name)
        outcomes = {name: outcome() for name, outcome in begun.items()}
        return {
            name: replace(outcome, changed_arguments=name in changing)
            if isinstance(outcome, CallScores)
            else outcome
            for name, outcome in outcomes.items()
        }

    def _content_now(self) -> object:
        """Return what differs if the arguments do; nothing to speak of for a function alone, after
        which there is no other."""
        assert self._arguments is not None
        if len(self._functions) == 1:
            return None
        try:
            return hash(pickle.dumps(self._arguments.by_name, protocol=5))
        except Exception:  # noqa: BLE001 - a function has put something into them
            return object()
