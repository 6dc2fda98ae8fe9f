"""What is a user's own on its way to a container: Python files that workers import, and local model
folders, each once for all runs that begin with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import mortal_steps
from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.inside.host import PROJECT
from mortal_steps.rewards.sources import find_sources
from mortal_steps.store.files import digest_file

MODELS = ".uploaded"
"""Folder of the Volume with the model folders."""


def project_files(specs: Iterable[str], objects: Iterable[str]) -> dict[str, Path]:
    """Return the files of code `specs` and pickled `objects`, by their path from the current
    folder, which is the containers', too. Raises `ConfigError` for one outside of it."""
    here = Path.cwd()
    files = [_object(file, here) for file in objects]
    files += [path for spec in specs for path in _files_of(spec, here)]
    return {str(path.relative_to(here)): path for path in files}


def _object(file: str, here: Path) -> Path:
    """Return a file that an object is loaded from; containers find it at the same relative path."""
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise ConfigError(
            f"the object {file}, which scores or answers calls, is not below the current folder, "
            f"{here}, and containers get what is below it; choose a runs_dir in it"
        )
    return here / file


def digest_of(files: Mapping[str, Path]) -> str:
    content = [f"{digest_file(path)} {name}\n" for name, path in sorted(files.items())]
    return hashlib.sha256("".join(content).encode()).hexdigest()


async def share_project(volume: RunsVolume, run_id: str, files: Mapping[str, Path]) -> None:
    """Upload the files; those of a time before are replaced."""
    if files:
        await volume.upload({f"{run_id}/{PROJECT}/{name}": path for name, path in files.items()})


async def fetch_project(volume: RunsVolume, run_id: str) -> None:
    folder = f"{run_id}/{PROJECT}"
    for path in await volume.files(folder):
        await volume.download(path, Path(path).relative_to(folder))


def _files_of(spec: str, here: Path) -> Iterator[Path]:
    """Yield what `module:name` is in, or may import: the modules beside a file, the whole package
    of a module, and what these import from elsewhere below the folder. What is installed is in the
    image, or is nowhere there."""
    imported = (here / name for name in find_sources([spec], here).files)
    yield from (path for path in imported if path.is_file() and path.is_relative_to(here))
    module = spec.rpartition(":")[0]
    package = here / module.partition(".")[0]
    if module.endswith(".py"):
        folder = (here / module).resolve().parent
        if not folder.is_relative_to(here):
            raise ConfigError(
                f"{spec!r} is in {folder}; containers get what is below the "
                f"current folder, {here}: start the run from a folder above it"
            )
        yield from folder.glob("*.py")
    elif package == Path(mortal_steps.__file__).parent:
        return
    elif package.is_dir():
        yield from package.rglob("*.py")
    else:
        yield from here.glob(f"{module}.py")


def remote_folder(files: Mapping[str, str]) -> str:
    """Return where on the Volume the folder with these files belongs, sha256 by name."""
    content = json.dumps(dict(files), sort_keys=True).encode()
    return f"{MODELS}/{hashlib.sha256(content).hexdigest()}"


async def share_folder(volume: RunsVolume, folder: Path, where: str) -> None:
    """Upload a model's folder, where it is on this machine and nobody has done so before."""
    if not folder.is_dir() or await volume.files(where):
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    await volume.upload({f"{where}/{path.relative_to(folder)}": path for path in files})


async def fetch_folder(volume: RunsVolume, folder: Path, where: str) -> None:
    """Bring a model's folder from the Volume, unless it is on this machine."""
    if folder.is_dir():
        return
    for path in await volume.files(where):
        await volume.download(path, folder / Path(path).relative_to(where))
