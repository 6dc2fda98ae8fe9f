"""What a name such as `module:name` stands for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError


def import_named(spec: str, key: str) -> Any:
    """The object that `module:name` names; a module that is not installed is looked for in the
    working folder.

    Raises `ConfigError` that names the `key` of the configuration.
    """
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    try:
        if importlib.util.find_spec(module_name.partition(".")[0]) is None:
            sys.path.append(here)
            importlib.invalidate_caches()
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{key} = {spec!r} cannot be imported from {here}: {error}; start the run in the "
            "folder that the module is in, or install it"
        ) from error
    if not hasattr(module, name):
        raise ConfigError(f"{key} = {spec!r}: {module.__file__} has no {name!r}")
    return getattr(module, name)
