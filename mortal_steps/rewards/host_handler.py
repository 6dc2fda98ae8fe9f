"""The rewards' part of a host: loads reward functions and calls them.

Functions run in the main thread of the host; what async ones return is awaited in another. As in
TRL, the async functions of a shard are awaited beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mortal_steps.config import RewardTerm
from mortal_steps.rewards import functions as our_functions
from mortal_steps.rewards.calling.calls import CallArguments, Outcome
from mortal_steps.rewards.calling.dispatch import begin_call, call_function, is_async
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.ledger import JudgedRun, use_run
from mortal_steps.rewards.users_code.loading import load_term
from mortal_steps.sandbox import executors
from mortal_steps.sandbox.executors import ExecutorSettings


class RewardHandler:
    """Holds the functions of a run and the completions they are called with.

    `terms` gives what to import under each name; `gym_rows`: the rows come from reasoning_gym
    itself; `sandbox`: where programs run; `judge`: where judges keep what they paid for.
    """

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
        self._together: Mapping[str, float] = {}
        """Async functions to begin with the first of them, with their limits in seconds."""
        self._begun: dict[str, Callable[[], Outcome]] = {}
        for function in self._functions.values():
            if isinstance(function, RewardEnvironment):
                function.prepare()

    def release(self) -> None:
        """Let go what would outlive this process: sandboxes of a service."""
        executors.close()

    def receive(self, *, arguments: CallArguments, together: Mapping[str, float]) -> list[str]:
        """Keep what the next calls are about. The async ones of the functions `together`, each with
        its limit in seconds, begin at the same time, and are returned; none means that this is a
        further try."""
        self._arguments = arguments
        if together:
            names = [name for name in together if is_async(self._functions[name])]
            if len(names) < 2:
                names = []
            self._together, self._begun = {name: together[name] for name in names}, {}
        return list(self._together)

    def call(self, *, name: str, limit_s: float) -> Outcome:
        """Call a function on what was received; raises the `MortalError` that it raises."""
        assert self._arguments is not None  # RewardHost calls `receive` before
        if name in self._together:
            limits, self._together = self._together, {}
            for each, limit in limits.items():
                self._begun[each] = begin_call(
                    self._functions[each], self._arguments, timeout_s=limit
                )
        if name in self._begun:
            return self._begun.pop(name)()
        return call_function(self._functions[name], self._arguments, timeout_s=limit_s)
