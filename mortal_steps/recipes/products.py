"""What stages that are no runs have produced.

    runs/.recipes/<recipe>/<stage>-<identity>/
      work/           what is committed while it is made; removed once the product is there
      out/            the product, with the digest of each file
      product.json    its record, written last

Made once: whoever asks again is given the record.
"""

import contextlib
import dataclasses
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.recipes.references import MAIN
from mortal_steps.recipes.stages import Job, Output, OutputKind, Product, Say, Stage
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, locked_at_once

logger = logging.getLogger(__name__)

OUT, WORK, RECORD = "out", "work", "product.json"


class MadeStage(Stage):
    """A stage whose product is a folder, made once."""

    @abstractmethod
    async def make(self, job: Job, work: Path, out: Path, say: Say) -> Mapping[str, float]:
        """Fill the folder `out`, which is committed when this returns. The folder `work` stays
        until then: what is committed there is not computed again when the process is killed.
        Return metrics, to be shown."""

    def main(self, out: Path) -> str:
        """Return the name of the file in `out` that the main output is; empty: the folder."""
        return MAIN

    def product(self, job: Job) -> Product | None:
        return read_product(job)


async def make_product(stage: MadeStage, job: Job, say: Say) -> Product:
    """Return what the stage produces, made now unless it is there. Raises what `make` raises, and
    `StoreError` while another process makes it."""
    store = RunStore(job.folder)
    store.root.mkdir(parents=True, exist_ok=True)
    with _alone(store, job):
        if (found := read_product(job)) is not None:
            return found
        store.remove_leftovers("")
        work = store.path(WORK)
        work.mkdir(exist_ok=True)
        with store.committing_folder(OUT) as out:
            metrics = await stage.make(job, work, out, say)
            main = stage.main(out)
        product = Product(
            recipe=job.recipe,
            stage=job.stage,
            job_id=job.id,
            outputs=_outputs(store, job, stage.outputs, main),
            inputs=job.inputs,
            metrics=dict(metrics),
            headline=", ".join(f"{name} {value:g}" for name, value in metrics.items()),
            made_at=time.time(),
        )
        write_product(job, product)
        store.remove_folder(WORK)
        return product


def write_product(job: Job, product: Product) -> None:
    """Keep what a stage has produced."""
    RunStore(job.folder).write_record(RECORD, product, Product)


def read_product(job: Job) -> Product | None:
    """Return the product of a job, if it is there, whole. What is damaged is told and made again.
    The inputs are those of the job: another parent may have produced the same since."""
    store = RunStore(job.folder)
    found = store.find_whole(RECORD, Product, "made again")
    if found is None:
        return None
    try:
        for output in found[1].outputs.values():
            verify(job.runs_dir, output)
    except CorruptFileError as error:
        logger.warning("stage %s is made again: %s", job.stage, error)
        return None
    return dataclasses.replace(found[1], inputs=job.inputs)


def verify(runs_dir: Path, output: Output) -> None:
    """Raise `CorruptFileError` unless an output is there as it was produced."""
    path = runs_dir / output.path
    if output.kind == "dataset":
        if not path.is_file() or digest_file(path) != output.sha256:
            raise CorruptFileError(f"{path} is missing or was altered since it was made")
    else:
        RunStore(path.parent).verify_folder(path.name, output.sha256)


def _outputs(
    store: RunStore, job: Job, kinds: Mapping[str, OutputKind], main: str
) -> dict[str, Output]:
    found: dict[str, Output] = {}
    for name, kind in kinds.items():
        file = main if name == MAIN else ""
        path = store.path(f"{OUT}/{file}") if file else store.path(OUT)
        sha256 = digest_file(path) if file else store.folder_digest(OUT)
        below = os.path.relpath(path, job.runs_dir)
        found[name] = Output(kind=kind, path=below, sha256=sha256)
    return found


@contextlib.contextmanager
def _alone(store: RunStore, job: Job) -> Iterator[None]:
    with locked_at_once(store.path("lock")) as lock:
        if lock is None:
            raise StoreError(
                f"stage {job.stage} of recipe {job.recipe} is being made by another process; wait "
                "for it"
            )
        yield
