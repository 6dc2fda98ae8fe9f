"""Tokens a second, seconds of a train step and memory, with a model of real size on a GPU."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from benchmarks.gpu_check.checked import Checked
from benchmarks.gpu_check.device import describe_device
from benchmarks.gpu_check.sampling import ask


@dataclass(frozen=True, slots=True)
class Size:
    """The model, and the completions that it makes."""

    width: int
    layers: int
    tokens: int
    """Of each completion."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `1280:24:512`. Raises `ValueError`."""
        width, layers, tokens = map(int, text.split(":"))
        return cls(width, layers, tokens)

    @classmethod
    def for_this_machine(cls) -> Self:
        """Half a billion parameters on a GPU; on a CPU, what takes seconds."""
        return cls(1280, 24, 512) if describe_device()["is_gpu"] else cls(128, 2, 64)


def check(folder: Path, engines: Mapping[str, str], size: Size) -> Iterator[Checked]:
    """A check for each engine's sampling and one for training; they pass where they run."""
    for engine, python in engines.items():
        yield _measured(folder, python, "sample", size, engine=engine)
    yield _measured(folder, engines["transformers"], "train", size)


def _measured(folder: Path, python: str, what: str, size: Size, engine: str = "") -> Checked:
    began = time.perf_counter()
    try:
        answer = ask(
            python,
            "benchmarks.gpu_check.measuring",
            folder,
            what=what,
            engine=engine,
            size=asdict(size),
        )
        passed, measured = True, answer["measured"]
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        passed, measured = False, f"ended with {error.returncode}: {' '.join(last)}"
    return Checked(
        part="speed",
        name=" ".join(filter(None, [what, engine])),
        passed=passed,
        took_s=time.perf_counter() - began,
        measured=measured,
    )
