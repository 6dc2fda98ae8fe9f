"""The user's own modules, which reward functions are in or import.

A module of the user's folders goes before an installed one of its name (`tasks`, `utils`), as in a
script, but not before the standard library or what MORTAL requires: a `datasets.py` that prepares
data must not be taken for the library that reads it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mortal_steps import DISTRIBUTION

OURS = frozenset({"mortal", "mortal_steps"})
INSTALLED = ("site-packages", "dist-packages")
"""Ends of the folders that packages are installed in."""


def make_importable(folders: Sequence[Path]) -> None:
    """Let this process find the modules of the folders: behind the standard library, before what is
    installed. What they would hide of MORTAL and its requirements is imported before."""
    for name in sorted(OURS | _required()):
        hiding = (at / file for at in folders for file in (f"{name}.py", f"{name}/__init__.py"))
        if any(path.is_file() for path in hiding):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    new = [str(folder) for folder in folders if str(folder) not in sys.path]
    first = (at for at, path in enumerate(sys.path) if path.endswith(INSTALLED))
    at = next(first, len(sys.path))
    sys.path[at:at] = new
    importlib.invalidate_caches()


def folders_of(module: str, working_dir: Path) -> list[Path]:
    """Return the folders in which the imports of a function begin that is in `module`, a file or a
    dotted name.

    For a file in a package this includes the folder of the package; never a folder above
    `working_dir`.
    """
    if not module.endswith(".py"):
        return [working_dir]
    folder = (working_dir / module).absolute().parent
    outside = folder
    while outside != working_dir.absolute() and (outside / "__init__.py").is_file():
        outside = outside.parent
    return list(dict.fromkeys([folder, working_dir, outside]))


def find_in(folders: Sequence[Path], name: str, *, relative: bool = False) -> list[Path]:
    """Return the files that importing a dotted name executes, if it is a module of the user's,
    those of its packages first.

    Empty for installed modules. If the last part of the name is no module, the files of the other
    parts. A `relative` name starts in a package.
    """
    parts = name.split(".")
    for folder in folders:
        found: list[Path] = []
        at = folder
        for part in parts:
            package, module = at / part / "__init__.py", at / f"{part}.py"
            if package.is_file():
                found.append(package)
            elif module.is_file():
                found.append(module)
                break
            elif not (at / part).is_dir():
                break
            at /= part
        if found:
            return [] if not relative and is_protected(parts[0]) else found
    return []


def is_protected(name: str) -> bool:
    """Return whether a user's module does not replace this top-level name."""
    return name in sys.stdlib_module_names or name in OURS or name in _required()


@functools.cache
def _required() -> frozenset[str]:
    """Return the packages that MORTAL requires, by the names of their modules; none where MORTAL is
    not installed."""
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    names = (re.match(r"[\w.-]+", each) for each in requirements if "extra ==" not in each)
    return frozenset(name[0].lower().replace("-", "_") for name in names if name is not None)
