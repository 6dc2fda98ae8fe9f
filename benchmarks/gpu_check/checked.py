"""What came of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A check, with what it measured in words."""

    part: str
    name: str
    passed: bool
    took_s: float
    measured: str = ""

    def line(self) -> str:
        """For the terminal."""
        verdict = "ok" if self.passed else "FAILED"
        return f"{self.part:9} {verdict:7} {self.took_s:6.1f} s  {self.name}  {self.measured}"
