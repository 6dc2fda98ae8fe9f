"""The batch source `atropos`: each step trains on a batch of an Atropos API server.

The server hands a batch out once. It is committed before anything else is done with it, and from
then on it is the step's, for a run that is killed and resumed as well.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mortal_steps.atropos.api import AtroposApi, Registration
from mortal_steps.atropos.options import AtroposOptions
from mortal_steps.errors import BatchSourceError, CorruptFileError
from mortal_steps.models.shape import find_shape
from mortal_steps.orchestration.batch_sources.base import BatchSource, RolloutWorkers, StepBatch
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.batches import Rows
from mortal_steps.policy.journal import find_result
from mortal_steps.report.units import counted
from mortal_steps.runs.argument import run_argument
from mortal_steps.store.records import step_file
from mortal_steps.types import BatchRef, FileRef, Problem, StageTiming, WeightsRef

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
"""Seconds between two looks at whether a rollout worker was restarted."""


class AtroposBatches(BatchSource):
    """Batches of an Atropos API server, a row for each group."""

    roles = ()
    supplies = Rows

    def __init__(self, *, session: Session, workers: RolloutWorkers) -> None:
        self._session = session
        config, run_id = session.run.config, session.run.info.run_id
        options = AtroposOptions.model_validate(config.rollout.source_options)
        wanted = Registration(
            wandb_group=options.wandb_group or run_id,
            wandb_project=options.wandb_project,
            batch_size=config.training.rows,
            max_token_len=options.seq_len,
            checkpoint_dir=str(session.store.root),
            save_checkpoint_interval=config.checkpoints.save_steps or 0,
            starting_step=session.run.manifest.step,
            num_steps=session.run.info.num_steps,
        )
        shape = find_shape(config.model)
        vocabulary = None if shape is None else shape.vocabulary
        self._api = AtroposApi(options.url, wanted, poll_s=options.poll_s, vocabulary=vocabulary)
        self._workers, self._serves = workers, bool(config.rollout.ports)
        self._newest: WeightsRef | None = None
        self._asking: asyncio.Task[StepBatch | None] | None = None
        self._stop = asyncio.Event()
        """Ends what `_asking` does."""

    def supplied_in_words(self) -> str:
        rows = self._session.run.config.training.rows
        return f"{counted(rows, 'sequence')} of environments a step"

    async def take(self, step: int) -> StepBatch:
        """Return the batch that is committed for `step`, or ask for one and commit it."""
        recorded = self._recorded(step)
        if recorded is not None:
            return recorded
        if self._asking is None or self._asking.done():
            self._stop = asyncio.Event()
            self._asking = asyncio.create_task(self._ask(step, self._stop))
        # A caller that is cancelled leaves it going: the answer may be on its way.
        found = await asyncio.shield(self._asking)
        if found is None:
            raise asyncio.CancelledError
        return found

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        self._newest = max(published, key=lambda weights: weights.version)

    def publish(self, weights: WeightsRef) -> None:
        """Serve a new version from the next batch on."""
        self._newest = weights

    async def close(self) -> None:
        """Wait for the answer that is under way, which holds a batch that is sent only once."""
        self._stop.set()
        if self._asking is not None:
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._api.close()

    async def _ask(self, step: int, stop: asyncio.Event) -> StepBatch | None:
        await self._serve()
        started = time.perf_counter()
        serving = asyncio.create_task(self._keep_serving())
        # It ends when the policy cannot be served; then no batch is asked for.
        serving.add_done_callback(lambda _: stop.set())
        try:
            groups = await self._api.next_batch(stop)
        finally:
            serving.cancel()
        if groups is None:
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            return None
        file = self._session.store.write_record(
            step_file("get_batch", step), _rows(step, groups), list[Problem]
        )
        return _reference(step, file, len(groups), time.perf_counter() - started)

    async def _serve(self) -> None:
        if self._serves and self._newest is not None:
            await self._workers.serve_with(self._newest)

    async def _keep_serving(self) -> None:
        """Have workers that were restarted load the version, while a batch is waited for."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._serve()

    def _recorded(self, step: int) -> StepBatch | None:
        store, name = self._session.store, step_file("get_batch", step)
        try:
            found = store.find_record(name, list[Problem])
            if found is not None and found[1][0].id != _row_id(step, 0):
                raise CorruptFileError(f"{store.path(name)} holds the batch of another step")
        except CorruptFileError as error:
            if find_result(store, step) is not None:
                named = run_argument(self._session.run.store.root)
                raise BatchSourceError(
                    f"{error}. Step {step} was trained on it, and the server has no copy: put one "
                    f"back, or let `mortal fork {named}` go on from a checkpoint"
                ) from error
            logger.warning("step %d trains on another batch: %s", step, error)
            return None
        return None if found is None else _reference(step, found[0], len(found[1]), 0.0)


def _rows(step: int, groups: Sequence[Mapping[str, Any]]) -> list[Problem]:
    return [
        Problem(id=_row_id(step, number), prompt="", columns=columns)
        for number, group in enumerate(groups)
        for columns in [{name: value for name, value in group.items() if value is not None}]
    ]


def _row_id(step: int, number: int) -> str:
    return f"atropos-{step}-{number}"


def _reference(step: int, file: FileRef, num_rows: int, wait_s: float) -> StepBatch:
    timing = StageTiming(stage="get_batch", step=step, wait_s=wait_s)
    problems = BatchRef(step=step, file=file, num_problems=num_rows, timing=timing)
    return StepBatch(problems, Rows(rows=file, num_rows=num_rows))
