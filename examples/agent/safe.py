"""A safe that opens with a code, and a clerk who knows the code.

    user       Open safe kfq
    assistant  ask(safe="kfq")
    tool       wmt
    assistant  open(code="wmt")
    tool       open
    assistant  done

A class as TRL's GRPOTrainer takes it (`environment_factory=Safe`): `reset` is given the row, the
other public methods are the model's tools, and `get_reward` scores what came of it.
"""

from __future__ import annotations

from typing import Any


class Safe:
    """A safe that can be tried once. Its code stands in the row, which the model does not see."""

    def reset(self, safe: str, code: str, **row: Any) -> None:
        """Close the safe of this row."""
        self.safe, self.code = safe, code
        self.is_tried = self.is_open = False

    def ask(self, safe: str) -> str:
        """Ask the clerk for the code of a safe.

        Args:
            safe: Name of the safe, three letters.
        """
        return self.code if safe == self.safe else "unknown"

    def open(self, code: str) -> str:
        """Try a code. Only the first one counts.

        Args:
            code: Three letters.
        """
        if not self.is_tried:
            self.is_tried, self.is_open = True, code == self.code
        return "open" if self.is_open else "shut"

    def get_reward(self) -> float:
        """1 if the safe is open."""
        return float(self.is_open)
