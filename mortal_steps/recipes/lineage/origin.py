"""`inputs.json`: what a stage of a recipe began with.

It lies in the run directory of a stage that is a run, and else beside the stage's product. A job's
id follows from the digests of its inputs, so a record that is there says the same as a new one.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mortal_steps.recipes.lineage.code import Code, code_around
from mortal_steps.recipes.references import find_reference
from mortal_steps.recipes.stages import Input, Job, RunStage, Stage
from mortal_steps.runs.recipe_of import INPUTS
from mortal_steps.store import RunStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What a stage began with."""

    recipe: str
    stage: str
    kind: str
    """Name of its kind, such as `train`."""
    identity: str
    inputs: tuple[Input, ...] = ()
    contents: Mapping[str, Any] = field(default_factory=dict)
    """What the data and models from elsewhere are, by the key that names them: the sha256 of a file
    or folder, or the commit of what is on the hub."""
    code_sha256: tuple[str, ...] = ()
    """Digests of the user's code that its configuration names."""
    code: Code | None = None
    """The git repository around the working folder."""
    working_dir: str = ""
    began_at: float = 0.0
    """Seconds since the epoch."""


def note_origin(stage: Stage, kind: str, job: Job) -> None:
    """Record what a stage begins with, unless that was recorded before. Raises what `parts` of the
    stage raises, and `StoreError`."""
    folder = job.runs_dir / job.id if isinstance(stage, RunStage) else job.folder
    store = RunStore(folder)
    if store.find_whole(INPUTS, Origin, "written again") is not None:
        return
    parts = stage.parts()
    configured = isinstance(parts, Mapping) and isinstance(parts.get("config"), Mapping)
    origin = Origin(
        recipe=job.recipe,
        stage=job.stage,
        kind=kind,
        identity=job.identity,
        inputs=job.inputs,
        contents=dict(_contents(parts["config"])) if configured else {},
        code_sha256=tuple(parts.get("code", ())) if configured else (),
        code=code_around(Path.cwd()),
        working_dir=os.getcwd(),
        began_at=time.time(),
    )
    store.root.mkdir(parents=True, exist_ok=True)
    store.write_record(INPUTS, origin, Origin)


def find_origin(folder: Path) -> Origin | None:
    """Return what the run or product in a folder began with, if that is recorded. Raises
    `CorruptFileError`."""
    found = RunStore(folder).find_record(INPUTS, Origin)
    return found[1] if found else None


def _contents(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    data, model = config.get("data", {}), config.get("model", {})
    named = {f"data.{key}": data.get(key) for key in ("source", "eval_source")}
    named |= {f"data.eval_sets.{key}": each for key, each in data.get("eval_sets", {}).items()}
    named["model.name_or_path"] = model.get("name_or_path")
    for key, content in named.items():
        if content not in (None, "") and find_reference(content, key) is None:
            yield key, content
