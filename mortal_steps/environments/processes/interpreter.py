"""The interpreter of the environments' process: is there what it needs?"""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.table import TRL
from mortal_steps.errors import ConfigError

OLDEST = (3, 11)
MORTALS = ("pydantic", "numpy", "cloudpickle", "blake3")
"""Packages that MORTAL itself needs in the environments' interpreter."""
ASK_S = 60.0
ASK = """
import importlib, importlib.util, json, sys
missing = []
for name in sys.argv[1:]:
    try:
        if importlib.util.find_spec(name) is None:
            missing.append(name)
        elif name in MORTALS:
            importlib.import_module(name)
    except ImportError as error:  # what it needs itself
        missing.append(error.name or name)
print(json.dumps([list(sys.version_info[:2]), missing]))
"""


def check_interpreter(environment: EnvironmentConfig) -> None:
    """Raise `ConfigError` unless the interpreter of the environments' process can be executed, and
    has what MORTAL and the kind of environment need there."""
    python = environment.python
    needed = packages_for(environment) if python is not None else environment.needs
    if not needed:
        return
    if python is not None and shutil.which(python) is None:
        raise ConfigError(
            f"environment.python = {python!r}: there is no program of that name that may be "
            "executed; name the `bin/python` of a virtual environment"
        )
    version, missing = _ask(python or sys.executable, needed)
    named = f"environment.python = {python!r}" if python else sys.executable
    if version < OLDEST:
        raise ConfigError(
            f"{named} is Python {'.'.join(map(str, version))}; the environments' process needs "
            f"Python {'.'.join(map(str, OLDEST))} or newer"
        )
    if missing:
        packages = " ".join(repr(needed.get(name, name)) for name in missing)
        raise ConfigError(
            f"{named} has no {', '.join(missing)}, needed for environment.type = "
            f"{environment.type!r}; install what is missing: {python or sys.executable} -m pip "
            f"install {packages}"
        )


def packages_for(environment: EnvironmentConfig) -> dict[str, str]:
    """Return the modules that an interpreter without MORTAL needs, by their names, with what pip
    installs them by."""
    needed = dict(environment.needs)
    if environment.type == TRL:  # tools are described to the model by it
        here = importlib.metadata.version("transformers")
        needed = {"transformers": f"transformers=={here}", **needed}
    return {**{name: name for name in MORTALS}, **needed}


def _ask(python: str, modules: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return an interpreter's version, and which of the modules it would not find."""
    command = [python, "-P", "-c", f"MORTALS = {MORTALS}\n{ASK}", *modules]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
        version, missing = json.loads(asked.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        told = error if isinstance(error, OSError | subprocess.TimeoutExpired) else asked.stderr
        raise ConfigError(
            f"environment.python = {python!r} is no Python 3.11 or newer: {str(told).strip()}; "
            "name the `bin/python` of a virtual environment"
        ) from None
    return tuple(version), missing
