"""Jobs in JSON, each done by a process of its own: `python -m benchmarks.jobs MODULE:FUNCTION JOB`.

It imports nothing but what the job's function does.
"""

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
"""Where configurations name their data from."""
MOST_TOLD = 1500
"""Characters of what a process printed that an error tells."""


class Failed(Exception):
    """A process that did not answer, and why."""


def ask(
    function: str,
    job: Mapping[str, Any],
    *,
    python: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Return what a function of `benchmarks`, such as `weights.measured:measure`, answers in a new
    process, in the repository's folder; raises `Failed`, or `subprocess.TimeoutExpired`.

    `variables`: of the environment, besides.
    """
    command = [python, "-m", "benchmarks.jobs", function, json.dumps(job)]
    env = {**os.environ, **(variables or {})}
    # Not pipes: what a process leaves running would hold them open.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=output, stderr=errors, timeout=timeout_s
        )
        output.seek(0)
        errors.seek(0)
        answered, told = output.read().strip(), errors.read().strip()
    if done.returncode:
        raise Failed(f"ended with {done.returncode}: {(told or answered)[-MOST_TOLD:]}")
    return json.loads(answered.splitlines()[-1])


def in_turn(variants: Sequence[T], number: int) -> Sequence[T]:
    """Return the order of a round: every second one in reverse, so that a slow minute of the
    machine does not fall on one of the variants."""
    return variants if number % 2 == 0 else variants[::-1]


def main() -> None:
    """Do the job, and print what comes of it as the last line; dataclasses as objects."""
    module, _, name = sys.argv[1].partition(":")
    measure = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    found = measure(json.loads(sys.argv[2]))
    sys.stdout.write("\n" + json.dumps(found, default=dataclasses.asdict) + "\n")


if __name__ == "__main__":
    main()
