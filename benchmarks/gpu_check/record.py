"""What a load found, as a file; the one that later loads on the same hardware are held to."""

import dataclasses
import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, TypeAdapter

from benchmarks.gpu_check.checked import Checked, Figure
from benchmarks.jobs import ROOT
from benchmarks.output import version_of

BASELINES = ROOT / "benchmarks/results/gpu"
PACKAGES = ("torch", "transformers", "trl", "vllm")
MOST_WORSE = 0.05
"""By which part a figure may be worse than its baseline."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A load on one machine."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    load: int
    name: str
    date: str
    """When it began, with its time zone."""
    hardware: str
    is_gpu: bool
    tiny: bool
    driver: str | None
    versions: Mapping[str, str | None]
    """Of `PACKAGES`; None for what is not there."""
    commit: str | None
    """Of this project; None where neither git nor the command names it."""
    figures: Mapping[str, Figure]
    """By the name of the check and their own."""
    checks: tuple[Checked, ...]

    @property
    def file(self) -> str:
        """Its name among the baselines."""
        return (
            f"load-{self.load}.{re.sub('[^a-z0-9]+', '-', self.hardware.lower()).strip('-')}.json"
        )

    @classmethod
    def begin(
        cls, load: int, name: str, device: Mapping[str, Any], *, tiny: bool, commit: str | None
    ) -> Self:
        """Return one without checks; `device` is what `describe_device` returns."""
        return cls(
            load=load,
            name=name,
            date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            hardware=device["name"],
            is_gpu=device["is_gpu"],
            tiny=tiny,
            driver=device["driver"],
            versions={package: version_of(package) for package in PACKAGES},
            commit=commit or _printed("git", "-C", str(ROOT), "rev-parse", "HEAD"),
            figures={},
            checks=(),
        )

    def with_checks(self, checks: Sequence[Checked]) -> Self:
        """Return it with these checks, and with their figures."""
        named = {
            f"{checked.name}: {what}": figure
            for checked in checks
            for what, figure in checked.figures.items()
        }
        return dataclasses.replace(self, checks=tuple(checks), figures=named)

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        content = json.dumps(dataclasses.asdict(self), indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(content + "\n", encoding="utf-8")
        part.replace(path)


RECORD = TypeAdapter(Record)


def read(path: Path) -> Record:
    """Raises `ValueError` for a file that is no record."""
    return RECORD.validate_json(path.read_bytes())


def baseline_of(record: Record, folder: Path = BASELINES) -> Record | None:
    """Return what the same load found on the same hardware; None for a tiny size and on a CPU."""
    path = folder / record.file
    return read(path) if record.is_gpu and not record.tiny and path.exists() else None


def held_to(baseline: Record | None, checked: Checked) -> Checked:
    """Return the check, failed where one of its figures is too much worse than its baseline."""
    worse = []
    for what, figure in checked.figures.items():
        before = baseline and baseline.figures.get(f"{checked.name}: {what}")
        if before and before.unit == figure.unit and figure.worse_by(before) > MOST_WORSE:
            worse.append(f"{what} {figure.worse_by(before):.0%} WORSE than {before}")
    if not worse:
        return checked
    told = "; ".join([checked.measured, *worse])
    return dataclasses.replace(checked, passed=False, measured=told)


def describe_device(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return name, driver, torch's version, and why torch cannot use the GPU, if so. It is asked in
    a process of its own: one that has used CUDA cannot fork."""
    import torch

    from mortal_steps.policy.gpu import why_unused

    is_gpu = torch.cuda.is_available()
    return {
        "name": torch.cuda.get_device_name(0) if is_gpu else "the CPU",
        "is_gpu": is_gpu,
        "torch": torch.__version__,
        "why_no_gpu": why_unused(),
        "driver": _printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    }


def _printed(*command: str) -> str | None:
    """Return the first line that a command prints; None where it is missing or fails."""
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.partition("\n")[0].strip()
