"""What a part is told, how it asks processes of its own, and what came of each check."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.jobs import Failed, ask


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the parts are told."""

    engines: Mapping[str, str]
    """Interpreter of each engine."""
    is_gpu: bool
    tiny: bool
    """Whether each check has the size at which it shows only that it runs."""
    until: float
    """When the part has to end, by `time.monotonic()`."""
    model: Path | None = None
    """A trained model: a GGUF file, or a folder of transformers'."""

    @property
    def sampler(self) -> str:
        """The engine that samples: vLLM where it is there."""
        return "vllm" if "vllm" in self.engines else "transformers"

    @property
    def size(self) -> float:
        """Billions of parameters, of benchmarks/weights/shapes.py."""
        return 0.01 if self.tiny else 0.5

    def ask(
        self,
        function: str,
        folder: Path,
        *,
        python: str = sys.executable,
        variables: Mapping[str, str] | None = None,
        **job: Any,
    ) -> dict[str, Any]:
        """Return what a function such as `steps:measure` of this package answers in a process of
        its own; raises `Failed`."""
        folder.mkdir(parents=True, exist_ok=True)
        left = self.until - time.monotonic()
        if left < 5:
            raise Failed("left out: the part's time is over")
        try:
            answer: dict[str, Any] = ask(
                f"gpu_check.{function}",
                {"folder": str(folder), **job},
                python=python,
                variables=variables,
                timeout_s=left,
            )
        except subprocess.TimeoutExpired:
            raise Failed("broken off: the part's time is over") from None
        return answer


LESS_IS_BETTER: Mapping[str, bool] = {
    "s": True,
    "GB": True,
    "GB/s": False,
    "TFLOP/s": False,
    "tokens/s": False,
    "% MFU": False,
}
"""Of each unit that a figure may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A measured number that a later measurement on the same hardware is held to."""

    value: float
    unit: str

    def __post_init__(self) -> None:
        if self.unit not in LESS_IS_BETTER:
            raise ValueError(f"unit {self.unit!r} is none of {', '.join(LESS_IS_BETTER)}")

    def __str__(self) -> str:
        return f"{self.value:,.{1 if abs(self.value) >= 100 else 2}f} {self.unit}"

    def worse_by(self, other: Self) -> float:
        """Return by which part of the other it is worse; below 0 where it is better."""
        if not other.value:
            return 0.0
        change = (self.value - other.value) / abs(other.value)
        return change if LESS_IS_BETTER[self.unit] else -change


def figures(unit: str, **values: float) -> dict[str, Figure]:
    """Return figures of one unit by name."""
    return {name: Figure(value=value, unit=unit) for name, value in values.items()}


def in_words(found: Mapping[str, Figure]) -> str:
    """Return them for a report."""
    return ", ".join(f"{name} {figure}" for name, figure in found.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A check, with what it measured in words and in figures."""

    part: str
    name: str
    passed: bool
    took_s: float
    measured: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def line(self) -> str:
        """For the terminal."""
        verdict = "ok" if self.passed else "FAILED"
        return f"{self.part:12} {verdict:7} {self.took_s:6.1f} s  {self.name}  {self.measured}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a look at something found."""

    passed: bool = True
    measured: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


def check_one(part: str, name: str, look: Callable[[], Found]) -> Checked:
    """Return a check that fails where a process that it asks does."""
    began = time.perf_counter()
    try:
        found = look()
    except Failed as error:
        found = Found(passed=False, measured=str(error))
    return Checked(
        part=part,
        name=name,
        passed=found.passed,
        took_s=time.perf_counter() - began,
        measured=found.measured,
        figures=found.figures,
    )
