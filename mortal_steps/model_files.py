"""The files of a local model folder, as they were when the run began.

`model.name_or_path` is no part of the run directory. Somebody who trains into that folder again, or
downloads it anew, would have a run that is resumed go on from another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.files import digest_file

WEIGHTS = (".safetensors", ".bin")
OTHERS = (".json", ".model", ".txt", ".jinja", ".py")
"""Configuration, tokenizer, chat template, code; a README may change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """A file of the folder."""

    sha256: str
    num_bytes: int
    changed_ns: int
    """When the file system last changed anything about it; with size and time as they were, it
    need not be read again."""


def describe_model(model: ModelConfig) -> dict[str, ModelFile]:
    """What `model.name_or_path` holds, by file name; empty for a hub model and `[model.new]`."""
    if model.new is not None:
        return {}
    return {
        path.name: ModelFile(
            sha256=digest_file(path),
            num_bytes=path.stat().st_size,
            changed_ns=path.stat().st_ctime_ns,
        )
        for path in _files(Path(model.name_or_path))
    }


def check_model(model: ModelConfig, began_with: Mapping[str, ModelFile]) -> None:
    """Raise `ModelError` if the folder holds anything else than when the run began."""
    if not began_with:
        return
    folder = Path(model.name_or_path)
    changes = list(_changes(folder, began_with))
    if changes:
        raise ModelError(
            f"model.name_or_path: {folder.absolute()} is not what the run began with "
            f"({', '.join(changes)}); put it back as it was, or train again under another --run-id"
        )


def _changes(folder: Path, began_with: Mapping[str, ModelFile]) -> Iterator[str]:
    there = {path.name: path for path in _files(folder)}
    for name in sorted(there.keys() | began_with.keys()):
        if name not in there:
            yield f"{name} is missing"
        elif name not in began_with:
            yield f"{name} is new"
        elif not _is_same(there[name], began_with[name]):
            yield f"{name} was changed"


def _is_same(path: Path, before: ModelFile) -> bool:
    found = path.stat()
    if found.st_size != before.num_bytes:
        return False
    return found.st_ctime_ns == before.changed_ns or digest_file(path) == before.sha256


def _files(folder: Path) -> list[Path]:
    """Those that decide what the model is; none where there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if path.suffix in WEIGHTS + OTHERS and path.is_file()
    )
