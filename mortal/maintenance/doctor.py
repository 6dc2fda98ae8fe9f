"""`mortal doctor`: check what runs on this machine need, and print a line for each result.

Neither torch nor Prefect is imported for the checks of the machine."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer
from packaging.requirements import Requirement

from mortal.server.files import living_server, server_home, state_dir
from mortal.server.select_server import prepare_client, server_of_profile
from mortal_steps import DISTRIBUTION
from mortal_steps.errors import ServerError
from mortal_steps.report.printable import printable
from mortal_steps.report.units import byte_size
from mortal_steps.sandbox.levels import REMEDY, Level, reached_level
from mortal_steps.system.gpus import has_gpu

LITTLE, TOO_LITTLE = 10e9, 1e9
"""Bytes free on a disk: from where on that is a warning, or a problem."""
CUDA = re.compile(r"^cuda\b.*= *['\"]([^'\"]+)['\"]", re.MULTILINE)
"""In torch/version.py."""
ASK = "from mortal_steps.policy.gpu import why_unused; print(why_unused() or '')"
COLORS = {"ok": None, "warning": "yellow", "problem": "red"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check."""

    level: Literal["ok", "warning", "problem"]
    """A `problem` prevents runs from working; a `warning` does not, but should be known."""
    what: str
    word: str
    """What was found and, if something is wrong, what to do."""


def ok(what: str, word: str) -> Finding:
    return Finding(level="ok", what=what, word=word)


def warning(what: str, word: str) -> Finding:
    return Finding(level="warning", what=what, word=word)


def problem(what: str, word: str) -> Finding:
    """Return a complaint with which runs do not work."""
    return Finding(level="problem", what=what, word=word)


def examine(runs_dir: Path) -> bool:
    """Print the results; returns whether nothing prevents runs from working."""
    well = True
    for finding in _findings(runs_dir):
        line = f"  {finding.level:<8} {finding.what}: {finding.word}"
        typer.secho(printable(line), fg=COLORS[finding.level])
        well = well and finding.level != "problem"
    return well


def _findings(runs_dir: Path) -> Iterator[Finding]:
    yield from _of_the_machine(runs_dir)
    configured, own = os.environ.get("PREFECT_API_URL"), living_server(server_home())
    if not configured and (unused := server_of_profile()) is not None:
        yield warning("profile", unused)
    api_url = configured or (own.api_url if own else None)
    if api_url is None:
        yield ok("server", "none runs; `mortal train` and `mortal server` start one")
        return
    prepare_client()
    from mortal.server.api import check_serves  # Prefect reads its settings when imported

    named_by = "PREFECT_API_URL" if configured else "no PREFECT_API_URL: MORTAL's own server"
    yield ok("server", f"{api_url} is used ({named_by})")
    try:
        check_serves(api_url)
    except ServerError as error:
        yield problem("server", str(error))


def _of_the_machine(runs_dir: Path) -> Iterator[Finding]:
    yield packages()
    gpus = _gpus()
    yield torch_and_gpus(_torch_cuda(), gpus, _why_unused() if gpus else None)
    yield sandbox(reached_level())
    yield from disks({"runs": runs_dir, "state": state_dir(), "temp": Path(tempfile.gettempdir())})


def packages() -> Finding:
    """Check whether the installed packages are the ones that this version of MORTAL needs."""
    wanted = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    needed = [each for each in wanted if each.marker is None or each.marker.evaluate()]
    wrong = [text for each in needed if (text := _unlike(each))]
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
    """Check whether torch, which is built for CUDA version `cuda`, can use the machine's GPUs."""
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
        return warning("sandbox", f"{level.summary}; rewards that run them are refused. {REMEDY}")
    return ok("sandbox", level.summary)


def _torch_cuda() -> str | None:
    """CUDA version of torch, read from a file because importing torch takes seconds."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None  # a requirement
    text = CUDA.search(Path(found.origin).with_name("version.py").read_text(encoding="utf-8"))
    return text[1] if text else None


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
        model = re.search(r"^Model:\s*(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        found.append(model[1].strip() if model else path.parent.name)
    return found or ["a GPU"] * has_gpu()


def disks(folders: dict[str, Path]) -> Iterator[Finding]:
    """Check how much is free where runs, the server's state and temporary files are."""
    by_disk: dict[int, list[str]] = {}
    existing = {name: _existing(folder) for name, folder in folders.items()}
    for name, folder in existing.items():
        by_disk.setdefault(folder.stat().st_dev, []).append(name)
    for names in by_disk.values():
        free = shutil.disk_usage(existing[names[0]]).free
        text = f"{byte_size(free)} free for {', '.join(names)} ({existing[names[0]]})"
        if free < TOO_LITTLE:
            yield problem("disk", f"{text}; `mortal gc` lists what can be removed")
        elif free < LITTLE:
            yield warning("disk", f"{text}; `mortal gc` lists what can be removed")
        else:
            yield ok("disk", text)


def _existing(folder: Path) -> Path:
    """Return the folder, or the parent folder in which it would be made."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
