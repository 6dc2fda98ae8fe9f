"""What a run was made of: the inputs of its stage, what its configuration names, and its parent."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.errors import MortalError
from mortal_steps.recipes.lineage.ancestors import (
    GONE,
    Ancestor,
    Taken,
    inputs_of,
    maker_of,
    uid_of,
)
from mortal_steps.recipes.lineage.origin import Origin, find_origin
from mortal_steps.recipes.stages import Output
from mortal_steps.report.summary import summarize
from mortal_steps.runs.argument import RECIPES
from mortal_steps.runs.run import Run

logger = logging.getLogger(__name__)

TABLES = ("model", "data", "rewards", "algorithm", "evaluation", "environment")
"""Tables of a run's configuration that name models, data and code."""
NAMED = "model.name_or_path"
FROM_ELSEWHERE = (NAMED, "data.source", "data.eval_source")


def read_run(run: Run) -> Ancestor:
    """Return what is known of a run; what is damaged is told in it."""
    damage, summary = list[str](), summarize(run)
    settings, origin = records_of(run, damage.append)
    algorithm = settings.get("algorithm", {}).get("type", "")
    return Ancestor(
        folder=str(run.store.root),
        what=f"run, {algorithm}" if algorithm else "run",
        recipe=origin.recipe if origin else None,
        stage=origin.stage if origin else None,
        reached=f"{summary.status}, {summary.headline}",
        outputs=_final(run),
        made_at=run.info.created_at,
        takes=taken_by(run, settings, origin),
        code=origin.code if origin else None,
        code_sha256=origin.code_sha256 if origin else (),
        damage="; ".join(damage) or None,
    )


def records_of(run: Run, tell: Callable[[str], None]) -> tuple[Mapping[str, Any], Origin | None]:
    """Return the run's settings and what its stage began with, as far as they can be read."""
    settings: Mapping[str, Any] = {}
    origin = None
    try:
        settings = run.settings()
    except MortalError as error:
        tell(str(error))
    try:
        origin = find_origin(run.store.root)
    except MortalError as error:
        tell(str(error))
    return settings, origin


def taken_by(run: Run, settings: Mapping[str, Any], origin: Origin | None) -> list[Taken]:
    """Return what a run was made of, by these records."""
    inputs = inputs_of(origin.inputs if origin else (), run.store.root.parent)
    return [*inputs, *_of_run(run, settings, origin)]


def _final(run: Run) -> list[Output]:
    final = run.manifest.final
    return [
        Output(kind="model", path=str(run.store.path(path)), sha256=sha256)
        for path, sha256 in (final.folders() if final else ())
    ]


def _of_run(run: Run, settings: Mapping[str, Any], origin: Origin | None) -> Iterator[Taken]:
    """Yield what a run's configuration names, but for what `inputs_of` has, and a fork's parent."""
    own, known = run.store.root.resolve(), dict[str, Any](origin.contents if origin else {})
    is_new = "new" in settings.get("model", {})
    given = [each.output.path for each in origin.inputs] if origin else []
    for key, name, path in _named(settings, run.working_dir()):
        if any(path.match(each) for each in given) or (key == NAMED and is_new):
            continue
        maker = maker_of(path) if path.exists() else _gone(path, own.parent)
        is_model = key == NAMED
        if maker is not None and maker != own:
            files = run.info.model_files if is_model else None
            damage = None if path.exists() else GONE
            seen: dict[str, Any] = {"path": str(path), "files": files, "damage": damage}
            yield Taken(key=key, name=name, made_by=str(maker), **seen)
        elif key in FROM_ELSEWHERE or key.startswith("data.eval_sets."):
            content = known.get(key) or (_files(run) if is_model else None)
            yield Taken(key=key, name=name, content=content, about=_about(key, run, settings))
    if is_new:
        yield Taken(key="model.new", name="a model of its own", about="random weights")
    if (parent := run.info.parent) is not None:
        folder = own.parent / parent.run_id
        there = uid_of(folder)
        changed = "is another run now" if there else GONE
        yield Taken(
            key="fork",
            name=f"{parent.run_id}, step {parent.step}",
            made_by=str(folder),
            damage=None if there == parent.uid else changed,
        )


def _gone(path: Path, runs_dir: Path) -> Path | None:
    """Return the folder of the run or product that a path led to which is no more."""
    whole = path.resolve()
    if not whole.is_relative_to(runs_dir) or whole == runs_dir:
        return None
    parts = whole.relative_to(runs_dir).parts
    return runs_dir.joinpath(*parts[: 3 if parts[0] == RECIPES else 1])


def _named(settings: Mapping[str, Any], start: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield every text in the tables that name models and data which can be a path: its key, the
    text, and where it leads from a folder."""
    for table in TABLES:
        for key, text in _texts(settings.get(table, {}), table):
            with contextlib.suppress(OSError):  # a judge's instructions are too long for a name
                path = start / os.path.expanduser(text)
                path.exists()
                yield key, text, path


def _texts(values: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _texts(value, f"{key}.{name}")
    elif isinstance(values, list | tuple):
        for number, value in enumerate(values):
            yield from _texts(value, f"{key}[{number}]")
    elif isinstance(values, str) and values and "\0" not in values:
        yield key, values


def _files(run: Run) -> Any:
    weights = {name: each.sha256 for name, each in run.info.model_files.items()}
    return {name: sha for name, sha in weights.items() if name.endswith((".safetensors", ".bin"))}


def _about(key: str, run: Run, settings: Mapping[str, Any]) -> str:
    """Return more of data from elsewhere, in words."""
    data, found = settings.get("data", {}), list[str]()
    if key == NAMED:
        revision = settings.get("model", {}).get("revision")
        return f"revision {revision}" if revision else ""
    split = data.get("split" if key == "data.source" else "eval_split")
    if data.get("config") and key == "data.source":
        found.append(f"config {data['config']}")
    if split and not Path(data.get("source", "")).suffix:
        found.append(f"split {split}")
    if key == "data.source":
        found.append(f"{run.info.num_problems:,} rows")
        found.append(f"fingerprint {run.info.dataset_fingerprint}")
    elif key == "data.eval_source":
        found.append(f"{run.info.num_eval_problems:,} rows")
    return ", ".join(found)
