"""What a model was made of, what that was made of, and so on, down to datasets and to models from
elsewhere.

It is read from records: inputs.json of stages of recipes; for other runs, what their configuration
names that lies in the folder of another run, and the run that a fork goes on from. What is damaged
or gone is named, and what leads there stays.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.errors import CorruptFileError, MortalError
from mortal_steps.recipes.lineage.ancestors import GONE, Ancestor, Taken, inputs_of, is_made, uid_of
from mortal_steps.recipes.lineage.of_runs import read_run, records_of, taken_by
from mortal_steps.recipes.lineage.origin import find_origin
from mortal_steps.recipes.products import RECORD as PRODUCT
from mortal_steps.recipes.stages import Output, Product
from mortal_steps.registry.registry import VERSIONS, ModelVersion, Registry
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE

logger = logging.getLogger(__name__)


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


def takes_of(folder: Path, runs_dir: Path) -> Sequence[Taken]:
    """Return what the run, product or version in a folder was made of; nothing for another folder.
    Of a run, a damaged record is warned of. Raises `CorruptFileError` for other damage."""
    if (folder / IDENTITY_FILE).exists():
        run = find_run(folder.parent, folder.name)
        return taken_by(run, *records_of(run, logger.warning))
    if (folder / PRODUCT).exists():
        return _product(folder).takes
    if is_made(folder):
        return _version(folder, runs_dir).takes
    if (origin := find_origin(folder)) is not None:  # it is being made
        return [*inputs_of(origin.inputs, folder.parents[2])]
    return ()


def _read(folder: Path, runs_dir: Path) -> Ancestor:
    try:
        if (folder / IDENTITY_FILE).exists():
            return read_run(find_run(folder.parent, folder.name))
        if (folder / PRODUCT).exists():
            return _product(folder)
        if folder.parent.name == VERSIONS:
            return _version(folder, runs_dir)
    except (MortalError, OSError) as error:
        return Ancestor(folder=str(folder), what="unknown", damage=str(error))
    return Ancestor(folder=str(folder), what="unknown", damage=GONE)


def _product(folder: Path) -> Ancestor:
    runs_dir = folder.parents[2]
    record = RunStore(folder).find_record(PRODUCT, Product)
    assert record is not None
    product, origin, damage = record[1], None, None
    try:
        origin = find_origin(folder)
    except CorruptFileError as error:
        damage = str(error)
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
        takes=[*inputs_of(product.inputs, runs_dir), *taken],
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
    there = uid_of(run)
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
