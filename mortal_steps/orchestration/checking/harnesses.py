"""What is checked of harnesses, each in a process of its own, before a run begins."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import call_once
from mortal_steps.config import ComputeConfig
from mortal_steps.config.eval_sets import Harness
from mortal_steps.errors import ConfigError


def check_harnesses(
    harnesses: Mapping[str, Harness], compute: ComputeConfig, say: Callable[[str], None]
) -> None:
    """Load each harness in the rollout workers' interpreter, and let it check its settings. Raises
    `HarnessError`."""
    local, place = compute.local.rollout, compute.place
    there = place.shares_files and local.python and shutil.which(local.python)
    for name, harness in harnesses.items():
        files = harness.read_files
        if files and not place.shares_files:
            raise ConfigError(
                f"evaluation.sets.{name} reads files of this machine ({files[0]}), and "
                f"compute.backend = {compute.backend!r} samples in containers, which do not "
                "get them; evaluate it on a machine of your own, or leave it out"
            )
        for file in harness.files:
            if not Path(file).exists():
                raise ConfigError(
                    f"evaluation.sets.{name}.files: there is no {file} in {Path.cwd()}"
                )
        say(f"loading the harness of evaluation.sets.{name}")
        spec = WorkerSpec(
            factory="mortal_steps.harnesses.handler:HarnessHandler",
            kwargs={"name": name, "harness": harness},
            python=local.python if there else None,
            env=local.env,
        )
        call_once(spec, "check")
