"""What a model was made of: an ancestor, and what it has taken from others."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, MortalError
from mortal_steps.recipes.lineage.code import Code
from mortal_steps.recipes.products import RECORD as PRODUCT
from mortal_steps.recipes.stages import Input, Output
from mortal_steps.registry.registry import VERSIONS
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types.identity import ModelFile

GONE = "is gone"
"""The damage of what is not there; to a run that has taken it, it may do no harm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """Something that was taken to make a model."""

    key: str
    """Where it is named, such as `model.name_or_path`; `fork` for the run that was forked."""
    name: str
    """Path or name, as it is written."""
    made_by: str | None = None
    """Folder of the ancestor that made it; None: it comes from elsewhere."""
    output: Output | None = None
    """As it was when it was taken, where that was noted; its path is absolute."""
    path: str = ""
    """Where the configuration of a run leads for it."""
    files: Mapping[str, ModelFile] | None = None
    """The files there as they were, by name, where these were noted."""
    content: Any = None
    """What tells it from others, if it comes from elsewhere: a sha256, or a commit of the hub."""
    about: str = ""
    """More of it, such as `split train, 2,000 rows`."""
    damage: str | None = None
    """What is wrong with it, at a glance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ancestor:
    """A run, the product of a stage, or a model that was put to use."""

    folder: str
    what: str
    """Such as `run, grpo`."""
    recipe: str | None = None
    stage: str | None = None
    reached: str = ""
    """In a line."""
    outputs: Sequence[Output] = ()
    """What it made; the paths are absolute."""
    made_at: float | None = None
    """When it began, or was decided, in seconds since the epoch."""
    takes: Sequence[Taken] = ()
    code: Code | None = None
    code_sha256: Sequence[str] = ()
    damage: str | None = None
    """Why nothing, or not all, is known of it."""

    @property
    def name(self) -> str:
        return Path(self.folder).name


def maker_of(path: Path) -> Path | None:
    """Return the folder of the run, product or version that what lies at a path belongs to; None:
    it is of none of them."""
    whole = path.resolve()
    return next((each for each in (whole, *whole.parents) if is_made(each)), None)


def is_made(folder: Path) -> bool:
    """Return whether a folder is that of a run, a product or a version."""
    is_here = (folder / IDENTITY_FILE).is_file() or (folder / PRODUCT).is_file()
    return is_here or is_version(folder)


def is_version(folder: Path) -> bool:
    """Return whether a folder is that of a model of the registry."""
    return folder.parent.name == VERSIONS and folder.with_name(f"{folder.name}.json").is_file()


def inputs_of(inputs: Sequence[Input], runs_dir: Path) -> Iterator[Taken]:
    """Yield what a stage has taken from others, as it was noted."""
    for each in inputs:
        path = Path(os.path.normpath(runs_dir / each.output.path))
        output = Output(kind=each.output.kind, path=str(path), sha256=each.output.sha256)
        made_by = maker_of(path)
        yield Taken(
            key=each.key,
            name=f"{each.stage} of the recipe",
            made_by=str(made_by or runs_dir / each.made_by),
            output=output,
            damage=_at_a_glance(output),
        )


def _at_a_glance(output: Output) -> str | None:
    """Return what is wrong with an output, without reading all of it."""
    path = Path(output.path)
    if not path.exists():
        return GONE
    if output.kind not in ("model", "folder"):
        return None
    try:
        now = RunStore(path.parent).folder_digest(path.name)
    except CorruptFileError as error:
        return str(error)
    return None if now == output.sha256 else f"is another one now: sha256 {now}"


def uid_of(folder: Path) -> str | None:
    """Return the uid of the run in a folder; None without one that can be read."""
    try:
        return find_run(folder.parent, folder.name).info.uid
    except MortalError:
        return None
