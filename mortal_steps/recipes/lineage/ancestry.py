"""What a model was made of, what that was made of, and so on, down to datasets and to models from
elsewhere.

It is read from records: inputs.json of stages of recipes; for other runs, what their configuration
names that lies in the folder of another run, and the run that a fork goes on from. What is damaged
or gone is named, and what leads there stays.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, MortalError
from mortal_steps.recipes.lineage.code import Code
from mortal_steps.recipes.lineage.origin import Origin, find_origin
from mortal_steps.recipes.products import RECORD as PRODUCT
from mortal_steps.recipes.stages import Output, Product
from mortal_steps.registry.registry import VERSIONS, ModelVersion, Registry
from mortal_steps.report.status import status_of
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types.identity import ModelFile

logger = logging.getLogger(__name__)

TABLES = ("model", "data", "rewards", "algorithm", "evaluation", "environment")
"""Tables of a run's configuration that name models, data and code."""
GONE = "is gone"
"""The damage of what is not there; to a run that has taken it, it may do no harm."""
LONGEST_PATH = 256
"""Characters; longer texts, such as a judge's instructions, name no file."""
NAMED = "model.name_or_path"
FROM_ELSEWHERE = (NAMED, "data.source", "data.eval_source")


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
    files: Mapping[str, ModelFile] | None = None
    """The files of a model as they were, by name, where these were noted."""
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


def ancestry(folders: Sequence[Path], runs_dir: Path) -> list[Ancestor]:
    """Return what lies in these folders, and all that it comes from, each once, before what it was
    made of. `runs_dir` is where the runs of models in use lie."""
    known = set[str]()
    ordered: list[Ancestor] = []

    def visit(folder: str) -> None:
        if folder in known:
            return
        known.add(folder)
        found = _read(Path(folder), runs_dir)
        for each in reversed(found.takes):
            if each.made_by is not None:
                visit(each.made_by)
        ordered.append(found)

    for folder in reversed(folders):
        visit(str(folder.resolve()))
    return ordered[::-1]


def maker_of(path: Path) -> Path | None:
    """Return the folder of the run, product or version that what lies at a path belongs to; None:
    it is of none of them."""
    whole = path.resolve()
    return next((each for each in (whole, *whole.parents) if _is_made(each)), None)


def takes_of(folder: Path, runs_dir: Path) -> Sequence[Taken]:
    """Return what the run, product or version in a folder was made of; nothing for another folder.
    Of a run, a damaged record is warned of. Raises `CorruptFileError` for other damage."""
    if (folder / IDENTITY_FILE).exists():
        run = find_run(folder.parent, folder.name)
        return _taken_by(run, *_records(run, logger.warning))
    if (folder / PRODUCT).exists():
        return _product(folder).takes
    if _is_made(folder):
        return _version(folder, runs_dir).takes
    if (origin := find_origin(folder)) is not None:  # it is being made
        return [*_inputs(origin, folder.parents[2])]
    return ()


def _is_made(folder: Path) -> bool:
    of_registry = folder.parent.name == VERSIONS and folder.with_name(f"{folder.name}.json")
    return bool(
        (folder / IDENTITY_FILE).is_file()
        or (folder / PRODUCT).is_file()
        or (of_registry and of_registry.is_file())
    )


def _read(folder: Path, runs_dir: Path) -> Ancestor:
    try:
        if (folder / IDENTITY_FILE).exists():
            return _run(find_run(folder.parent, folder.name))
        if (folder / PRODUCT).exists():
            return _product(folder)
        if folder.parent.name == VERSIONS:
            return _version(folder, runs_dir)
    except (MortalError, OSError) as error:
        return Ancestor(folder=str(folder), what="unknown", damage=str(error))
    return Ancestor(folder=str(folder), what="unknown", damage=GONE)


def _run(run: Run) -> Ancestor:
    folder, damage = run.store.root, list[str]()
    settings, origin = _records(run, damage.append)
    algorithm = settings.get("algorithm", {}).get("type", "")
    return Ancestor(
        folder=str(folder),
        what=f"run, {algorithm}" if algorithm else "run",
        recipe=origin.recipe if origin else None,
        stage=origin.stage if origin else None,
        reached=f"{status_of(run).status}, {summarize(run).headline}",
        outputs=_final(run),
        made_at=run.info.created_at,
        takes=_taken_by(run, settings, origin),
        code=origin.code if origin else None,
        code_sha256=origin.code_sha256 if origin else (),
        damage="; ".join(damage) or None,
    )


def _records(run: Run, tell: Callable[[str], None]) -> tuple[Mapping[str, Any], Origin | None]:
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


def _taken_by(run: Run, settings: Mapping[str, Any], origin: Origin | None) -> list[Taken]:
    return [*_inputs(origin, run.store.root.parent), *_of_run(run, settings, origin)]


def _final(run: Run) -> list[Output]:
    final = run.manifest.final
    return [
        Output(kind="model", path=str(run.store.path(path)), sha256=sha256)
        for path, sha256 in (final.folders() if final else ())
    ]


def _inputs(origin: Origin | None, runs_dir: Path) -> Iterator[Taken]:
    """Yield what a stage has taken from others, as it was noted."""
    for each in origin.inputs if origin else ():
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


def _of_run(run: Run, settings: Mapping[str, Any], origin: Origin | None) -> Iterator[Taken]:
    """Yield what a run's configuration names, but for what `_inputs` has, and a fork's parent."""
    own, known = run.store.root.resolve(), dict[str, Any](origin.contents if origin else {})
    is_new = "new" in settings.get("model", {})
    given = [each.output.path for each in origin.inputs] if origin else []
    for key, name in _named(settings):
        path = run.working_dir() / Path(name).expanduser()
        if any(path.match(each) for each in given) or (key == NAMED and is_new):
            continue
        maker = maker_of(path) if path.exists() else _gone(path, own.parent)
        is_model = key == NAMED
        if maker is not None and maker != own:
            files = run.info.model_files if is_model else None
            damage = None if path.exists() else GONE
            yield Taken(key=key, name=name, made_by=str(maker), files=files, damage=damage)
        elif key in FROM_ELSEWHERE or key.startswith("data.eval_sets."):
            content = known.get(key) or (_files(run) if is_model else None)
            yield Taken(key=key, name=name, content=content, about=_about(key, run, settings))
    if is_new:
        yield Taken(key="model.new", name="a model of its own", about="random weights")
    if (parent := run.info.parent) is not None:
        folder = own.parent / parent.run_id
        there = _uid(folder)
        changed = "is another run now" if there else GONE
        yield Taken(
            key="fork",
            name=f"{parent.run_id}, step {parent.step}",
            made_by=str(folder),
            damage=None if there == parent.uid else changed,
        )


def _gone(path: Path, runs_dir: Path) -> Path | None:
    """Return the folder of the run that a path led to which is no more."""
    whole = path.resolve()
    if not whole.is_relative_to(runs_dir) or whole == runs_dir:
        return None
    return runs_dir / whole.relative_to(runs_dir).parts[0]


def _uid(folder: Path) -> str | None:
    try:
        return find_run(folder.parent, folder.name).info.uid
    except MortalError:
        return None


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text in the tables that name models and data, with its key."""
    for table in TABLES:
        yield from _texts(settings.get(table, {}), table)


def _texts(values: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _texts(value, f"{key}.{name}")
    elif isinstance(values, list | tuple):
        for number, value in enumerate(values):
            yield from _texts(value, f"{key}[{number}]")
    elif isinstance(values, str) and 0 < len(values) < LONGEST_PATH and "\0" not in values:
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


def _product(folder: Path) -> Ancestor:
    runs_dir = folder.parents[2]
    record = RunStore(folder).find_record(PRODUCT, Product)
    assert record is not None
    product, origin, damage = record[1], None, None
    try:
        origin = find_origin(folder)
    except CorruptFileError as error:
        damage = str(error)
    whole = Origin(
        recipe=product.recipe,
        stage=product.stage,
        kind=origin.kind if origin else "",
        identity="",
        inputs=product.inputs,
    )
    outputs = [
        Output(kind=each.kind, path=os.path.normpath(runs_dir / each.path), sha256=each.sha256)
        for each in product.outputs.values()
    ]
    contents = origin.contents if origin else {}
    taken = [Taken(key=key, name="", content=content) for key, content in contents.items()]
    return Ancestor(
        folder=str(folder),
        what=f"product, {origin.kind}" if origin else "product",
        recipe=product.recipe,
        stage=product.stage,
        reached=product.headline,
        outputs=outputs,
        made_at=product.made_at,
        takes=[*_inputs(whole, runs_dir), *taken],
        code=origin.code if origin else None,
        code_sha256=origin.code_sha256 if origin else (),
        damage=damage,
    )


def _version(folder: Path, runs_dir: Path) -> Ancestor:
    models_dir, name = folder.parents[2], folder.parents[1].name
    registry = Registry(models_dir, name)
    found = registry.store.find_record(f"{VERSIONS}/{folder.name}.json", ModelVersion)
    if found is None:
        raise CorruptFileError(f"{folder}.json is missing")
    version, run = found[1], runs_dir.resolve() / found[1].run_id
    made = [each for each in registry.history() if each.version.id == version.id]
    there = _uid(run)
    changed = "is another run now" if there else GONE
    return Ancestor(
        folder=str(folder),
        what=f"model in use as {name}" if made else f"model brought in as {name}",
        reached=f"{made[-1].action} by {made[-1].by}: {made[-1].why}".rstrip(": ") if made else "",
        outputs=[Output(kind="model", path=str(folder), sha256=version.sha256)],
        made_at=made[-1].at if made else None,
        takes=[
            Taken(
                key="run",
                name=version.run_id,
                made_by=str(run),
                damage=None if there == version.run_uid else changed,
            )
        ],
    )
