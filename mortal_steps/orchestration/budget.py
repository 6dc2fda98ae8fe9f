"""What a run has cost, and whether it may cost more."""

from collections.abc import Mapping
from pathlib import Path

from mortal_steps.compute.pool import Compute
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.types import JudgeCosts


class Budget:
    """The costs of a run's workers and judges, in dollars, and their limit if there is one."""

    def __init__(self, compute: Compute, run_dir: Path, limit: float | None) -> None:
        self._compute, self._limit = compute, limit
        self._judges = Spending(run_dir)

    def learn(self, judges: Mapping[str, JudgeCosts]) -> None:
        self._judges.learn(judges)

    def spent(self) -> float:
        return self._compute.spent() + self._judges.so_far().dollars

    def spent_share(self) -> float | None:
        """Return the part of the limit that is spent (1 is all of it); None without a limit."""
        return None if self._limit is None else self.spent() / self._limit

    def overspent(self) -> str | None:
        """Why the run has to stop, if it has cost as much as it may."""
        if self._limit is None or (spent := self.spent()) < self._limit:
            return None
        return f"compute.modal.max_cost = {self._limit:g} dollars ({spent:.2f} spent)"
