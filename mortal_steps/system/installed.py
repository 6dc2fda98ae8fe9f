"""Print which packages hold the modules that are its arguments, and their versions, as JSON.

Any interpreter runs this very file (`libraries.packages_of`), so nothing is imported here but the
standard library.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ModuleSpec
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path

SITE = ("site-packages", "dist-packages")
CODE = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)


def _found_here(modules: Sequence[str]) -> dict[str, str]:
    """Return the versions by the packages' names. What comes from no index (an editable package, a
    folder, a repository) may change without its version, which a digest of the module's files
    follows. Modules that are not there, or come with Python, are left out."""
    found, by_module = {}, packages_distributions()
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or module in sys.stdlib_module_names:
            continue
        names = sorted(set(by_module.get(module, ())))
        holders = [distribution(name) for name in names] or _named_as(module)
        version = " and ".join(each.version for each in holders)
        if not holders or not all(map(_is_of_an_index, holders)):
            version = f"{version} (files {_digest(spec, holders)})".strip()
        found[" and ".join(each.name for each in holders) or module] = version
    return found


def _named_as(module: str) -> list[Distribution]:
    """Return the package of the module's name: an editable one may not say what it holds."""
    try:
        return [distribution(module)]
    except PackageNotFoundError:
        return []


def _is_of_an_index(package: Distribution) -> bool:
    installer, origin = package.read_text("INSTALLER"), package.read_text("direct_url.json")
    return installer is not None and origin is None


def _digest(spec: ModuleSpec, holders: Sequence[Distribution]) -> str:
    """Return the digest of the code and of what was installed with it, not of what a program has
    written beside them since."""
    recorded = {str(path.locate()) for each in holders for path in each.files or ()}
    digest = hashlib.sha256()
    for name, path in sorted(_files(spec)):
        if path.name.endswith(CODE) or str(path) in recorded:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                of_file = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{name}\0{of_file}\0".encode())
    return digest.hexdigest()[:16]


def _files(spec: ModuleSpec) -> Iterator[tuple[str, Path]]:
    """Yield a package's files by their names there, or a single module's with those beside it."""
    for package in map(Path, spec.submodule_search_locations or ()):
        for folder, folders, names in os.walk(package):
            folders[:] = [each for each in folders if not each.startswith((".", "__pycache__"))]
            paths = [Path(folder, name) for name in names if not name.startswith(".")]
            yield from ((str(path.relative_to(package)), path) for path in paths)
    if spec.submodule_search_locations is None and spec.origin is not None:
        path = Path(spec.origin)
        beside = [path] if path.parent.name in SITE else path.parent.glob("*.py")
        yield from ((each.name, each) for each in beside)


if __name__ == "__main__":
    json.dump(_found_here(sys.argv[1:]), sys.stdout)
