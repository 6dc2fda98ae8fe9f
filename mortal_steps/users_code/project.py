"""The user's own modules, which reward functions are in or import.

A module of the user's folders goes before an installed one of its name (`tasks`, `utils`), but not
before the standard library, MORTAL, or what MORTAL needs: a `datasets.py` that prepares data must
not be taken for the library that reads it.
"""

import functools
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from mortal_steps import DISTRIBUTION

OURS = frozenset({"mortal", "mortal_deployments", "mortal_flows", "mortal_steps", "mortal_tasks"})


def make_importable(folders: Sequence[Path], name: str = "") -> None:
    """Let this process find modules of the folders, `name` among them; folders without
    `__init__.py` come last, through `sys.path`."""
    users_modules().add(folders, name)
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    importlib.invalidate_caches()


def folders_of(module: str, working_dir: Path) -> list[Path]:
    """Return the folders in which the imports of a function begin that is in `module`, a file or a
    dotted name. For a file in a package this includes the folder of the package; never a folder
    above `working_dir`."""
    if not module.endswith(".py"):
        return [working_dir]
    folder = (working_dir / module).absolute().parent
    outside = folder
    while outside != working_dir.absolute() and (outside / "__init__.py").is_file():
        outside = outside.parent
    return list(dict.fromkeys([folder, working_dir, outside]))


def find_in(folders: Sequence[Path], name: str, *, relative: bool = False) -> list[Path]:
    """Return the files that importing a dotted name executes, if it is a module of the user's,
    those of its packages first. Empty for installed modules. If the last part of the name is no
    module, the files of the other parts. A `relative` name starts in a package."""
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


@functools.cache
def is_protected(name: str) -> bool:
    """Return whether a user's module must not replace this top-level name."""
    if name in sys.stdlib_module_names or name in OURS:
        return True
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    if PathFinder.find_spec(name, installed) is None:
        return False  # known without reading what each distribution holds, which takes a while
    distributions = installed_distributions().get(name, [])
    needed = _needed()
    return any(needed is None or _normal(one) in needed for one in distributions)


@functools.cache
def installed_distributions() -> dict[str, list[str]]:
    """Return the distributions that hold each installed top-level name."""
    by_name = importlib.metadata.packages_distributions()
    return {name: list(found) for name, found in by_name.items()}


@functools.cache
def _needed() -> frozenset[str] | None:
    """Return what MORTAL requires, directly or not; None where it is not installed itself, so that
    whatever is there is there for it."""
    found: set[str] = set()
    waiting = [DISTRIBUTION]
    while waiting:
        try:
            requirements = importlib.metadata.requires(waiting.pop()) or []
        except importlib.metadata.PackageNotFoundError:
            if not found:
                return None
            continue
        for requirement in requirements:
            name = re.match(r"[\w.-]+", requirement)
            if name is not None and "extra ==" not in requirement and _normal(name[0]) not in found:
                found.add(_normal(name[0]))
                waiting.append(name[0])
    return frozenset(found)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class UsersModules(MetaPathFinder):
    """Finds users' modules before installed ones, first in `sys.meta_path`."""

    def __init__(self) -> None:
        self._folders: list[str] = []
        self._named: set[str] = set()

    def add(self, folders: Sequence[Path], name: str = "") -> None:
        """Look into these folders first. If `name` is given, one of them contains this module."""
        first = [str(one) for one in folders]
        self._folders = first + [one for one in self._folders if one not in first]
        if name and find_in(folders, name):
            self._named.add(name.partition(".")[0])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`. A folder of files that are no modules is no package: one without
        `__init__.py` comes before installed packages only where a function is named in it."""
        if path is not None:
            return None
        spec = PathFinder.find_spec(fullname, self._folders)
        if spec is None or (spec.loader is None and fullname not in self._named):
            return None
        return None if is_protected(fullname) else spec


def users_modules() -> UsersModules:
    """Return the finder of this process, which is installed at the first call."""
    for finder in sys.meta_path:
        if isinstance(finder, UsersModules):
            return finder
    finder = UsersModules()
    sys.meta_path.insert(0, finder)
    return finder
