"""The worker that holds the policy and trains it: idempotent steps, exact recovery.

The store is the truth and the state in memory a cache of it. A step goes

    [ journal.json committed | optimizer updates ] -> weights published -> result.json committed

and whatever of that a kill cuts off is done over: with the same batch, the same seed and the same
state before, it gives the same bits. A step with a committed result is never taken twice; if the
state in memory does not contain it yet (a fresh container), the journaled batches are replayed
from the newest whole checkpoint when the next step needs them.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.data.prepared import Preparation
from mortal_steps.data.problem_files import open_problems
from mortal_steps.errors import ActorStateError
from mortal_steps.models.hub import is_hub_model, model_folder
from mortal_steps.policy import epochs, gpu, journal
from mortal_steps.policy.algorithms.base import Stepper, algorithm_of
from mortal_steps.policy.batches import PreparedRows, TrainRequest
from mortal_steps.policy.chat_settings import keep_chat
from mortal_steps.policy.checks import check_model, check_options
from mortal_steps.policy.cpu_rates import Product, measure_rates
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.library_warnings import LibraryWarnings
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.policy.on_disk.rollout_files import prune_rollouts
from mortal_steps.policy.plan import ActorPlan
from mortal_steps.policy.publishing import Publisher
from mortal_steps.policy.ranks.crew import Crew
from mortal_steps.policy.saving import Saver
from mortal_steps.policy.starting_model import prompt_lengths
from mortal_steps.policy.starting_model.base_model import base_of
from mortal_steps.policy.state_manager import StateManager
from mortal_steps.report.trackers.table import IMPORTED_BY_TRL
from mortal_steps.store import RunStore
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import (
    ActorReady,
    Checkpoint,
    Evaluation,
    FileRef,
    FinalModel,
    Problem,
    StageTiming,
    StepResult,
)


class Actor:
    """The actor of one run. Any method may be called again, by a caller that lost the answer.
    `fingerprint` is that of the configuration with which the run began, as run.json has it."""

    def __init__(
        self,
        *,
        run_dir: str,
        plan: ActorPlan,
        fingerprint: str,
        model_path: str,
        num_steps: int,
    ) -> None:
        for module in IMPORTED_BY_TRL:
            sys.modules.setdefault(module, None)  # type: ignore[arg-type]
        self._store = RunStore(Path(run_dir))
        self._plan, trainer = plan, plan.trainer
        self._fingerprint = fingerprint
        self._model_path = model_path
        self._num_steps = num_steps
        self._clock = BackgroundClock()
        self._crew: Crew | None = None
        self._warned = LibraryWarnings()
        rollout, training = trainer.rollout, trainer.training
        self._publisher = Publisher(self._store, rollout, trainer.model, training, self._clock)
        self._saver = Saver(
            self._store, plan.checkpoints, self._publisher, fingerprint, self._clock
        )
        self._states = StateManager(
            self._store,
            self._make_stepper,
            self._publisher,
            self._saver,
            self._clock,
            plan=trainer,
            fingerprint=fingerprint,
        )

    def _make_stepper(self, autocast: bool | None) -> Stepper:
        trainer, training = self._plan.trainer, self._plan.trainer.training
        model = trainer.model
        options: dict[str, Any] = {
            "model_path": model_folder(self._model_path, model),
            "num_steps": self._num_steps,
            "output_dir": self._store.path("logs"),
            "autocast": autocast,
            "base": base_of(self._store, model, self._model_path),
        }
        algorithm = algorithm_of(trainer.algorithm)
        of_rows = algorithm.trains_on is PreparedRows
        if of_rows:
            options["prepared"] = epochs.prepared_folder(self._store)
            options["reference"] = epochs.reference_folder(self._store)
        if training.ranks == 1:
            stepper = algorithm.stepper(trainer, **options)
        else:
            if self._crew is None:
                self._crew = Crew(training.ranks, training.rank_timeout_s, training.sharding)
            stepper = self._crew.stepper(trainer, **options)
        if of_rows:
            epochs.keep_reference(self._store, stepper)
        return stepper

    def check(
        self, **asked: Any
    ) -> tuple[tuple[str, ...], tuple[str, ...], prompt_lengths.PromptLengths]:
        """See `check_options`."""
        return check_options(self._plan, **asked)

    def prepare_rows(
        self, *, train: Sequence[Problem], held_out: Sequence[Problem], folder: str
    ) -> Preparation:
        """Have TRL prepare the rows of a run that learns from them; see `RowsAlgorithm.prepare`."""
        trainer = self._plan.trainer
        algorithm: Any = algorithm_of(trainer.algorithm)
        came: Preparation = algorithm.prepare(trainer, train, held_out, folder=Path(folder))
        return came

    def draw_order(self, *, epoch: int, step: int) -> FileRef:
        """See `epochs.draw_order`."""
        return epochs.draw_order(self._store, self._states, epoch=epoch, step=step)

    def evaluate(self, *, step: int) -> Evaluation:
        """Return the metrics of the held-out rows after `step` steps, computed once; how many rows
        there are, the flow knows."""
        started = time.perf_counter()
        metrics = epochs.evaluate(self._store, self._states, step)
        timing = StageTiming(stage="evaluate", step=step, busy_s=time.perf_counter() - started)
        return Evaluation(step=step, num_problems=0, metrics=metrics, timing=timing)

    def measure_rates(self, products: tuple[Product, ...]) -> tuple[float, ...]:
        """See `cpu_rates.measure_rates`."""
        return measure_rates(products)

    def build_base_model(self, *, problems: FileRef) -> None:
        """Build and warm-start the model that the run begins with, unless it is already there
        whole. Raises `ModelError` or `DataError` if the configuration does not allow it, and
        `ModelError` if the model made is not the one that the run began with."""
        from mortal_steps.policy.starting_model.base_model import keep_base_model, make_base_model

        rows = open_problems(self._store, problems)
        path = Path(self._model_path)
        make_base_model(replace(self._plan, cache_dir=path.parent), rows, key=path.name)
        keep_base_model(self._store, path)

    def keep_chat(self) -> None:
        """Commit how chats with tools are rendered and read; see `chat_settings.keep_chat`."""
        options = self._plan.trainer.training.template_options
        keep_chat(self._store, self._plan.trainer.model, self._model_path, options)

    def prepare(self, *, step: int, publish: bool = True) -> ActorReady:
        """Get ready to take `step`. With `publish`, the versions that sample it and the steps after
        it are published and returned.

        If a record that leads to `step` is missing or damaged, the answer names the earlier step
        that it belongs to: the shards of that step have to be made again before a later step can be
        taken. Steps with a committed result are not undone; `train_step` answers from their
        records.
        """
        with self._warned.collecting():
            ready = self._prepared(step, publish)
        return replace(ready, warnings=(*ready.warnings, *self._warned.take()))

    def _prepared(self, step: int, publish: bool) -> ActorReady:
        step = recovery.furthest(self._store, self._plan.trainer.rollout, step)
        model, warnings = self._plan.trainer.model, tuple[str, ...]()
        if step == 0 and is_hub_model(model):
            path = model_folder(self._model_path, model)
            warnings = check_model(model, path, self._plan.trainer.algorithm)
        if self._plan.environment.is_used:
            self.keep_chat()
        published = tuple(
            weights.find(self._store, version)
            or self._publisher.publish(self._states.bring_to(version).stepper, version)
            for version in recovery.sampling_versions(self._plan.trainer.rollout, step)
            if publish
        )
        state = self._states.bring_to(step)
        gpu.empty_cache()  # engines may start only now
        return ActorReady(
            step=step,
            state_id=state.state_id,
            weights=published,
            num_parameters=state.stepper.num_parameters,
            num_trained=state.stepper.num_trained,
            place=state.stepper.place(),
            warnings=(*warnings, *state.stepper.warnings()) if step == 0 else (),
        )

    def train_step(self, *, request: TrainRequest) -> StepResult:
        """Take one train step, once however often this is called. Raises `ActorStateError` if it
        was taken with another batch or is out of reach."""
        started = time.perf_counter()
        if not 0 <= request.step < self._num_steps:
            raise ActorStateError(f"step {request.step} is outside 0..{self._num_steps - 1}")
        self._saver.prune_noted()
        digest = journal.batch_digest(self._store, request)
        result = journal.find_result(self._store, request.step)
        entry = JournalEntry(batch_sha256=digest, request=request)
        with self._warned.collecting():
            result = self._states.take(entry) if result is None else self._answer(entry, result)
        if gpu.gives_back(self._plan.trainer.rollout):
            gpu.empty_cache()
        busy_s = time.perf_counter() - started
        background, memory = self._clock.take(), gpu.memory()
        parts = self._states.parts.take()
        timing = replace(
            result.timing, busy_s=busy_s, functions=parts, background=background, memory=memory
        )
        return replace(result, timing=timing, warnings=self._warned.take())

    def begin_checkpoint(self, *, step: int) -> str | None:
        """Begin to save the state after `step` steps beside those that follow; `checkpoint` waits
        for the end. Returns why that is not possible, or None."""
        state = self._states.state
        if state is not None and state.step > step:
            return f"the actor holds {state.step} train steps already"
        return self._saver.begin(self._states.bring_to(step))

    def is_saving(self) -> bool:
        return self._saver.is_writing()

    def checkpoint(self, *, step: int, best_score: float | None) -> Checkpoint:
        """Save the state after `step` steps, replayed if it was passed; with `best_score` it is the
        best so far, and kept beyond the newest few."""
        saved, waits = self._saver.take(step), False
        if saved is None:
            state = self._states.state
            saved = checkpoints.find(self._store, step) if state and state.step > step else None
            saved = saved or self._saver.save(self._states.bring_to(step))
            waits = True
        if best_score is not None:
            checkpoints.mark_best(self._store, step, best_score)
        self._saver.prune(step)
        keep = self._plan.checkpoints
        there = [saved for saved in checkpoints.saved_steps(self._store) if saved <= step]
        prune_rollouts(
            self._store, done=step, keep=keep.keep_rollouts, checkpoints=there[-keep.keep_last :]
        )
        if waits:
            self._saver.finish()
        return saved

    def save_final(self, *, step: int | None = None) -> FinalModel:
        """Write the model after the run's last step to `final/`; `step` is that one, if the run
        has ended early."""
        step = self._num_steps if step is None else step
        state = self._states.bring_to(step)
        self._saver.finish()
        training = self._plan.trainer.training
        merges = training.use_lora and training.lora.merge_final
        same = [checkpoints.path_of(step), weights.path_of(step)]
        if recovery.parent_of(self._store):
            same = []  # a fork that loses its last checkpoint may have no other way to these bits
        with self._store.committing_folder("final", shared_with=same) as folder:
            state.stepper.save_final(folder)
        if merges:
            with self._store.committing_folder("final-merged", shared_with=same) as folder:
                state.stepper.save_merged(folder)
        self._publisher.finish()
        if checkpoints.find(self._store, step):
            self._saver.prune_completed(step)
            self._saver.finish()
            self._publisher.finish()
        return FinalModel(
            path="final",
            sha256=self._store.folder_digest("final"),
            weights_sha256=weights.weights_digest(self._store.path("final")),
            merged_path="final-merged" if merges else None,
            merged_sha256=self._store.folder_digest("final-merged") if merges else None,
        )

    def _answer(self, entry: JournalEntry, recorded: StepResult) -> StepResult:
        """Return a taken step's record with all restored that was lost: a flow that went back to a
        damaged step asks for all steps after it again."""
        step = recorded.step
        if recorded.batch_sha256 != entry.batch_sha256:
            raise ActorStateError(
                f"step {step} was taken with batch {recorded.batch_sha256[:12]} and is asked for "
                f"with {entry.batch_sha256[:12]}; a step is taken once. Shards made again after "
                "damage differ where a reward function is not deterministic, or on other hardware: "
                f"put the files of steps/{step:06d} back from a copy, or train again"
            )
        journal.repair_entry(self._store, entry)
        if recorded.weights is None:
            return recorded
        version = recorded.weights.version
        published = weights.find(self._store, version)
        if published is None:
            state = self._states.bring_to(step + 1)
            published = self._publisher.publish(state.stepper, state.step)
            self._publisher.prune(step)
        return replace(recorded, weights=published)
