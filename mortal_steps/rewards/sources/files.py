"""Finds the files that reward functions are made of: the files that define them, and the user's own
modules that these import.

The files are parsed and not executed. Imports inside functions count, too, and so do calls of
`import_module` with a literal name. Of installed packages, the version counts. Data files that a
function reads do not count.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mortal_steps import DISTRIBUTION
from mortal_steps.models.local_folder import files_of
from mortal_steps.rewards.sources.history import MISSING, RewardSources
from mortal_steps.rewards.users_code.project import (
    OURS,
    find_in,
    folders_of,
    installed_distributions,
)
from mortal_steps.store.files import digest_file


def find_sources(
    functions: Sequence[str],
    working_dir: Path,
    *,
    folders: Sequence[str] = (),
    began_in: Path | None = None,
    packages: bool = True,
) -> RewardSources:
    """The sources of functions as they are now, and the files of models in `folders`. Relative
    names start in `working_dir`. A name that is no folder is a model of the hub: its commit
    identifies it, and it has no files here.

    `began_in` is the folder in which the run began, which the names of model files start in as
    well; default: `working_dir`.
    """
    working_dir = working_dir.absolute()
    files = {
        _named(path, working_dir, began_in): _digest(path)
        for folder in folders
        for path in files_of(working_dir / folder)
    }
    installed: set[str] = set()
    for spec in functions:
        place = spec.rpartition(":")[0]
        for path in _closure(place, folders_of(place, working_dir), working_dir, installed):
            files[_from(working_dir, path)] = digest_file(path) if path.is_file() else MISSING
    return RewardSources(files=files, packages=_versions(installed) if packages else {})


def files_of_model(
    sources: RewardSources, folder: str, working_dir: Path, began_in: Path
) -> dict[str, str]:
    """The files in `sources` that belong to the model in `folder`; none for a model of the hub."""
    working_dir = working_dir.absolute()
    at = Path(_named(working_dir / folder, working_dir, began_in))
    return {path: sha256 for path, sha256 in sources.files.items() if Path(path).parent == at}


def _named(path: Path, working_dir: Path, began_in: Path | None) -> str:
    """The name of a model's file, which is the same on every machine that works on the run."""
    name = _from(working_dir, path)
    return name if began_in is None else _from(began_in, Path(name))


def _from(working_dir: Path, path: Path) -> str:
    return str(path.relative_to(working_dir) if path.is_relative_to(working_dir) else path)


def _digest(path: Path) -> str:
    """The digest of a model's file. This process reads the file again only if it was changed."""
    found = path.stat()
    return _digest_of(path, found.st_size, found.st_ctime_ns)


@functools.cache
def _digest_of(path: Path, num_bytes: int, changed_ns: int) -> str:
    return digest_file(path)


def _closure(
    place: str, folders: Sequence[Path], working_dir: Path, installed: set[str]
) -> Iterator[Path]:
    """Every file that `place` leads to; top-level names that lead out of the project go into
    `installed`."""
    if place.endswith(".py"):
        waiting = [(working_dir / place).absolute()]
    else:
        waiting = find_in(folders, place)
        if not waiting:
            installed.add(place.partition(".")[0])
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for name, base in _imports(path):
            found = find_in([base] if base else folders, name, relative=base is not None)
            if not found and base is None:
                installed.add(name.partition(".")[0])
            waiting += found


def _imports(path: Path) -> Iterator[tuple[str, Path | None]]:
    """The dotted names that a file imports, each with the folder in which a relative one starts."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # the reward host says what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else None
            start = f"{node.module}." if node.module else ""
            yield from ((f"{start}{alias.name}", base) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = getattr(node.args[0], "value", None)
            if called in ("import_module", "__import__") and isinstance(name, str):
                yield name, None


def _versions(names: set[str]) -> dict[str, str]:
    """Distribution -> version, of the distributions that hold these top-level names."""
    found = {}
    for name in sorted(names - sys.stdlib_module_names):
        for one in _distributions(name):
            found[one] = importlib.metadata.version(one)
    return found


def _distributions(name: str) -> list[str]:
    if name in OURS:
        name = DISTRIBUTION
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return [] if name == DISTRIBUTION else installed_distributions().get(name, [])
    return [name]
