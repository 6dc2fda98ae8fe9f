"""Which Python interpreters the workers of this machine have, and what is in them."""

import shutil
import subprocess
import sys
from collections.abc import Collection

from mortal_steps.compute.base import Role
from mortal_steps.config import ComputeConfig, RolloutConfig
from mortal_steps.errors import ConfigError
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES


def rollout_interpreter(compute: ComputeConfig) -> str:
    return compute.local.rollout.python or sys.executable


def lacks(python: str, module: str) -> bool:
    """Return whether an interpreter would not find a module, which is not imported."""
    probe = (
        "import importlib.util as u, sys; sys.path.append(''); "
        f"sys.exit(u.find_spec({module.partition('.')[0]!r}) is None)"
    )
    return subprocess.run([python, "-P", "-c", probe], check=False).returncode != 0


def engine_of(python: str) -> str:
    """Return the first of the engines that an interpreter has."""
    there = shutil.which(python) is not None
    needs = ((name, kind.needs) for name, kind in ENGINES.items())
    return next(
        name for name, module in needs if module is None or (there and not lacks(python, module))
    )


def check_interpreters(
    compute: ComputeConfig, rollout: RolloutConfig, roles: Collection[Role]
) -> None:
    """Raise `ConfigError` unless interpreters exist, and the rollout workers' has its engine."""
    for role in sorted(roles):
        check_interpreter(compute, role)
    name, kind = rollout.engine or ALWAYS_THERE, rollout.engine_kind
    if "rollout" not in roles or kind.needs is None:
        return
    python = rollout_interpreter(compute)
    if lacks(python, kind.needs):
        install = f" ({kind.install})" if kind.install else ""
        raise ConfigError(
            f"rollout.engine = {name!r}, but {python} has no {kind.needs}; set "
            f"compute.local.rollout.python to an interpreter with {kind.needs}{install}, or use "
            f"rollout.engine = {ALWAYS_THERE!r}"
        )
    if lacks(python, "pyarrow"):
        raise ConfigError(
            f"{python}, under which rollout workers run, has no pyarrow, in which they write "
            f"completions; install it there: {python} -m pip install pyarrow"
        )


def check_interpreter(compute: ComputeConfig, role: Role) -> None:
    """Raise `ConfigError` unless the interpreter of a role exists."""
    python = getattr(compute.local, role).python
    if python and shutil.which(python) is None:
        raise ConfigError(f"compute.local.{role}.python: no such interpreter: {python}")
