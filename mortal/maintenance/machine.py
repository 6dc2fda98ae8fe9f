"""Checks of `mortal doctor` on this machine; imports neither torch nor Prefect."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from mortal.maintenance import Finding, ok, problem, warning
from mortal.server.files import state_dir
from mortal_steps.report.units import byte_size
from mortal_steps.runs.removal import trash_in
from mortal_steps.sandbox.levels import REMEDY, Level, reached_level
from mortal_steps.system.distributions import DISTRIBUTION
from mortal_steps.system.gpus import has_gpu

LITTLE, TOO_LITTLE = 10e9, 1e9
"""Bytes free on a disk: from where on that is a warning, or a problem."""
CUDA = re.compile(r"^cuda\b.*= *['\"]([^'\"]+)['\"]", re.MULTILINE)
"""In torch/version.py."""
ASK = "from mortal_steps.policy.gpu import why_unused; print(why_unused() or '')"


def look_at_machine(runs_dir: Path) -> Iterator[Finding]:
    """Check packages, GPU, disks, and what is left in the folder of runs."""
    yield packages()
    gpus = _gpus()
    yield torch_and_gpus(_torch_cuda(), gpus, _why_unused() if gpus else None)
    yield sandbox(reached_level())
    yield from disks({"runs": runs_dir, "state": state_dir(), "temp": Path(tempfile.gettempdir())})
    yield leftovers(runs_dir)


def packages() -> Finding:
    """Check whether the installed packages are the ones that this version of MORTAL needs."""
    wanted = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    needed = [each for each in wanted if each.marker is None or each.marker.evaluate()]
    wrong = [told for each in needed if (told := _unlike(each))]
    if wrong:
        return problem("packages", f"{'; '.join(wrong)}; install MORTAL again in this environment")
    return ok("packages", f"the {len(needed)} that mortal needs, in versions that it works with")


def _unlike(wanted: Requirement) -> str | None:
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return f"{wanted.name} is missing"
    if wanted.specifier.contains(found, prereleases=True):
        return None
    return f"{wanted.name} is {found}, and {wanted.specifier} is needed"


def torch_and_gpus(cuda: str | None, gpus: list[str], why_unused: str | None = None) -> Finding:
    """Check whether torch can use the machine's GPUs; `cuda` is the version that it is built
    for."""
    built = f"torch {metadata.version('torch')}"
    if not gpus:
        return ok("GPU", f"none; {built} computes on the CPU")
    named = ", ".join(gpus)
    if cuda is None:
        return warning("GPU", f"{named}, but {built} is built for the CPU; install a CUDA build")
    if why_unused is not None:
        return problem("GPU", f"{named}, which cannot be used: {why_unused}")
    return ok("GPU", f"{named}; {built} is built for CUDA {cuda}")


def sandbox(level: Level) -> Finding:
    """Check whether programs that a model wrote can be isolated."""
    if level.way == "bare":
        return warning("sandbox", f"{level.told}; rewards that run them are refused. {REMEDY}")
    return ok("sandbox", level.told)


def _torch_cuda() -> str | None:
    """CUDA version of torch, read from a file because importing torch takes seconds."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None  # a requirement
    told = CUDA.search(Path(found.origin).with_name("version.py").read_text(encoding="utf-8"))
    return told[1] if told else None


def _why_unused() -> str | None:
    """Return what torch says of GPUs that it cannot use. It is asked in a process of its own."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    if asked.returncode:
        return (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
    return asked.stdout.strip() or None


def _gpus() -> list[str]:
    """Models of the GPUs, as NVIDIA's driver tells them; other GPUs without their names."""
    found = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", path.read_text(), re.MULTILINE)
        found.append(model[1].strip() if model else path.parent.name)
    return found or ["a GPU"] * has_gpu()


def disks(folders: dict[str, Path]) -> Iterator[Finding]:
    """Check how much is free where runs, the server's state and temporary files are."""
    by_disk: dict[int, list[str]] = {}
    places = {name: _existing(folder) for name, folder in folders.items()}
    for name, place in places.items():
        by_disk.setdefault(place.stat().st_dev, []).append(name)
    for names in by_disk.values():
        free = shutil.disk_usage(places[names[0]]).free
        told = f"{byte_size(free)} free for {', '.join(names)} ({places[names[0]]})"
        if free < TOO_LITTLE:
            yield problem("disk", f"{told}; `mortal gc` lists what can be removed")
        elif free < LITTLE:
            yield warning("disk", f"{told}; `mortal gc` lists what can be removed")
        else:
            yield ok("disk", told)


def _existing(folder: Path) -> Path:
    """Return the folder, or the parent folder in which it would be made."""
    return next(
        place for place in (folder.absolute(), *folder.absolute().parents) if place.exists()
    )


def leftovers(runs_dir: Path) -> Finding:
    """Return what removals have left in a folder of runs when they were killed."""
    trash = trash_in(runs_dir)
    if trash:
        told = f"{len(trash)} only partly removed in {runs_dir}; `mortal gc --delete` finishes it"
        return warning("runs", told)
    return ok("runs", f"none is only partly removed in {runs_dir}")
