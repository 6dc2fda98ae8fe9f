"""Which file a recipe is written in: two recipes of one name would take each other's record.

runs/.recipes/<name>/file.json names the file with which the recipe was last begun, relative to the
folder of the runs: a project may be moved or copied as a whole. A file that was moved, renamed or
copied is the same recipe.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import read_toml
from mortal_steps.recipes.file import RecipeConfig
from mortal_steps.recipes.record import RecipeFolder

RECORD = "file.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeFile:
    """The file that a recipe was begun with."""

    path: str
    """Relative to the folder of the runs."""


def check_name(config: RecipeConfig, file: Path) -> None:
    """Raise `ConfigError` if another file, which is still there, is another recipe of this name
    that was begun in the same folder of runs."""
    folder = _folder(config)
    found = folder.store.find_whole(RECORD, RecipeFile, "written anew")
    if found is None:
        return
    other = (folder.runs_dir / found[1].path).resolve()
    if other == file.resolve() or _means(other, config.name) in (None, _means(file, config.name)):
        return
    raise ConfigError(
        f"name = {config.name!r} in {file.resolve()} is already used by the recipe in {other}, "
        f"whose runs are in {config.runs_dir}, too; give this one another name or runs_dir, or "
        "remove that file if this one takes its place"
    )


def note_file(config: RecipeConfig, file: Path) -> None:
    """Note with which file the recipe is begun. Raises as `check_name`."""
    check_name(config, file)
    folder = _folder(config)
    folder.store.root.mkdir(parents=True, exist_ok=True)
    path = os.path.relpath(file.resolve(), folder.runs_dir)
    folder.store.write_record(RECORD, RecipeFile(path=path), RecipeFile)


def _folder(config: RecipeConfig) -> RecipeFolder:
    return RecipeFolder(Path(config.runs_dir).resolve(), config.name)


def _means(file: Path, name: str) -> dict[str, object] | None:
    """Return what a file says, None unless it is there and a recipe of this name."""
    try:
        values = dict(read_toml(file))
    except ConfigError:
        return None
    return values if values.setdefault("name", file.stem) == name else None
