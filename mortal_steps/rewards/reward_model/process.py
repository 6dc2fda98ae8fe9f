"""The process of a reward model, as its owner sees it."""

from __future__ import annotations

from collections.abc import Sequence

from mortal_steps.errors import WorkerLostError
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, Outcome
from mortal_steps.rewards.host_calls import RewardHost

TRIES = 2
"""A process that was ended is replaced once; scoring again changes nothing."""

OF_THE_HUB = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""What a model of the hub may ask for. The process runs no code but MORTAL's."""


class ModelProcess(RewardHost):
    """A host for one reward model. What ends it comes from outside, as no user's code runs in it:
    that is no failure of the completions, and never masks any."""

    import_timeout_s = 3600.0
    """It may have to come from the hub."""

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """See `RewardHost.call`. Raises `WorkerLostError` where the process ends again in the
        second try."""
        for _ in range(TRIES):
            outcomes = super().call(names, arguments, timeout_s=timeout_s)
            failures = [one for one in outcomes.values() if isinstance(one, CallFailure)]
            lost = [failure.message for failure in failures if failure.kind == "crash"]
            if not lost:
                return outcomes
        raise WorkerLostError(
            f"the reward model {self._called()} {lost[0]}, {TRIES} times in a row; memory may have "
            "run out"
        )
