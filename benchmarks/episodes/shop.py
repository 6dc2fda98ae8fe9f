"""The environment of the benchmarks, which runs unchanged under stock TRL and under MORTAL."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUTAGE = "the warehouse does not answer"


class Shop:
    """Counts what is put into a basket."""

    def reset(
        self,
        target: int,
        pause_s: float = 0.0,
        struck: Sequence[str] = (),
        once: str = "",
        **row: Any,
    ) -> None:
        """Begin with nothing. The calls in `struck`, such as `7/1`, find the warehouse down; with
        a folder `once`, each of them only the first time."""
        self.total, self.num_calls, self.target = 0, 0, target
        self._pause_s, self._struck, self._once = pause_s, frozenset(struck), once

    def add(self, amount: int, who: str) -> str:
        """Put something into the basket.

        Args:
            amount: How many pieces.
            who: Who puts it there.
        """
        call = f"{who}/{self.num_calls}"
        self.num_calls += 1
        time.sleep(self._pause_s)
        if call in self._struck and self._strikes(call):
            raise ConnectionError(OUTAGE)
        self.total += amount
        return f"total {self.total}"

    def get_reward(self) -> float:
        """1 for the target."""
        return float(self.total == self.target)

    def _strikes(self, call: str) -> bool:
        if not self._once:
            return True
        mark = Path(self._once, call.replace("/", "-"))
        if mark.exists():
            return False
        mark.touch()
        return True
