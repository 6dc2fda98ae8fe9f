"""Code that a script gives as objects: named where it can be imported, else kept in a file."""

import hashlib
import inspect
import sys
import sysconfig
from pathlib import Path
from typing import Any, Literal

from mortal.rewards import functions
from mortal_steps.rewards.pickles.digest import digest_of, is_imported
from mortal_steps.rewards.pickles.files import write_pickle
from mortal_steps.runs.objects import object_path
from mortal_steps.users_code.project import find_in, is_protected

LAMBDA = "<lambda>"


def spec_of(value: Any) -> str | None:
    """`module:name` or `path/file.py:name` for a function or a class that can be imported by its
    name without running the calling script; otherwise None.

    None also for one in a package beside the script: the files of such a package import each other,
    so one of them cannot be loaded alone.
    """
    name = getattr(value, "__name__", "")
    if name in functions.__all__ and getattr(functions, name) is value:
        return f"{functions.__name__}:{name}"
    module = is_imported(value)
    is_one = inspect.isfunction(value) or inspect.isclass(value)
    if module is None or not is_one or "." in value.__qualname__:
        return None
    file = users_file(module)
    if "." in module and file is not None and file.endswith(".py"):
        return None
    return f"{file or module}:{name}"


def pickled(
    value: Any,
    kind: Literal["environment", "reward"],
    place: str,
    runs_dir: str,
    besides: str = "",
) -> dict[str, Any]:
    """Keep an object in a file, and return the settings with which it is loaded. `place` is how an
    error calls it, and `besides` is what identifies it beside its code. Raises `RewardError` for an
    object that cannot be kept."""
    called = f"{place} ({name_of(value)})"
    digest, modules = digest_of(value, called)
    if besides:
        digest = hashlib.sha256(f"{digest} {besides}".encode()).hexdigest()
    path = object_path(runs_dir, kind, digest).with_suffix(".pickle")
    write_pickle(path, value, digest, called)  # an existing file may be from another Python
    return {
        "object": digest,
        "file": str(path),
        "modules": sorted({file for file in map(users_file, modules) if file is not None}),
    }


def name_of(value: Any) -> str:
    name = getattr(value, "__name__", None) or type(value).__name__
    return "lambda" if name == LAMBDA else name


def users_file(module: str) -> str | None:
    """Return the file of one of the user's modules, which lies below the current folder or beside
    the script; for a module in a package below the current folder, the module's name. None for a
    module that is installed."""
    file = _file_of(module)
    if file is None or not file.endswith(".py") or is_protected(module.partition(".")[0]):
        return None
    path, here = Path(file).absolute(), Path.cwd()
    installed = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    if any(path.is_relative_to(one) for one in installed):
        return None
    if not path.is_relative_to(here):
        beside = _folder_of_script()
        return str(path) if beside is not None and path.is_relative_to(beside) else None
    below = path.relative_to(here)
    in_package = "." in module and below.with_suffix("").as_posix().replace("/", ".") == module
    return module if in_package else str(below)


def _file_of(module: str) -> str | None:
    """Return a module's file, also of one that functions import only when they run."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    files = find_in([Path(folder).absolute() for folder in sys.path], module)
    return str(files[-1]) if files else None


def _folder_of_script() -> Path | None:
    """Return the script's folder, which other processes do not look for modules in."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return None if script is None else Path(script).absolute().parent
