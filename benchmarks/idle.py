"""Workers that do nothing, or wait: what is left of a run is its orchestration."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.policy.batches import TrainRequest
from mortal_steps.store import RunStore
from mortal_steps.types import (
    ActorReady,
    Checkpoint,
    FileRef,
    FinalModel,
    GenerateRequest,
    GenerationRef,
    PolicyVersion,
    RewardRef,
    RewardRequest,
    StageTiming,
    StepResult,
    WeightsRef,
)
from mortal_steps.types.results import TrainingPlace

NOTHING = "0" * 64
PLACE = TrainingPlace(device="cpu", precision="float32", threads=1)


class IdleCompute:
    """`Compute` whose answers name one small file of the run directory. Of a step it waits half in
    `generate`, and half in `train_step`."""

    def __init__(
        self, specs: Mapping[Role, WorkerSpec], *, step_s: float = 0.0, **options: Any
    ) -> None:
        self._wait_s = {"generate": step_s / 2, "train_step": step_s / 2}
        self._count = specs["rollout"].count
        self._store = RunStore(Path(specs["actor"].kwargs["run_dir"]))
        self._file = self._store.write_record("nothing.json", [0], list[int])

    async def start(self, role: Role) -> None:
        """See `Compute`; so for all."""

    async def call(
        self, role: Role, method: str, *, key: str, worker: int | None = None, **payload: Any
    ) -> Any:
        await asyncio.sleep(self._wait_s.get(method, 0.0))
        return getattr(self, f"_{method}")(**payload)

    def ready_workers(self, role: Role) -> list[int]:
        return list(range(self._count))

    def spent(self) -> float:
        return 0.0

    async def close(self) -> None:
        pass

    def _build_base_model(self, problems: FileRef) -> None:
        pass

    def _prepare(self, step: int, publish: bool) -> ActorReady:
        return ActorReady(
            step=step, state_id=NOTHING, weights=(_weights(step),), num_parameters=0, place=PLACE
        )

    def _sync_weights(self, weights: WeightsRef) -> StageTiming:
        return StageTiming(stage="sync_weights", step=weights.version)

    def _generate(self, request: GenerateRequest) -> GenerationRef:
        return GenerationRef(
            step=request.step,
            shard=request.shard,
            file=self._file,
            num_completions=1,
            num_tokens=1,
            policy_version=request.weights.version,
            timing=StageTiming(stage="generate", step=request.step),
        )

    def _reward(self, request: RewardRequest) -> RewardRef:
        generation = request.generation
        return RewardRef(
            step=generation.step,
            shard=generation.shard,
            file=self._file,
            generation=generation,
            reward_sum=0.0,
            num_scored=1,
            timing=StageTiming(stage="reward", step=generation.step),
        )

    def _train_step(self, request: TrainRequest) -> StepResult:
        return StepResult(
            step=request.step,
            metrics={"loss": 0.0},
            optimizer_steps=request.step + 1,
            batch_sha256=NOTHING,
            state_id=NOTHING,
            history_id=NOTHING,
            weights_digest=NOTHING,
            random_sha256=NOTHING,
            weights=_weights(request.step + 1) if request.publish else None,
            timing=StageTiming(stage="train_step", step=request.step),
        )

    def _begin_checkpoint(self, step: int) -> None:
        pass

    def _is_saving(self) -> bool:
        return False

    def _checkpoint(self, step: int, best_score: float | None) -> Checkpoint:
        timing = StageTiming(stage="checkpoint", step=step)
        path = f"checkpoints/step-{step}"
        return Checkpoint(step=step, path=path, sha256=NOTHING, state_id=NOTHING, timing=timing)

    def _save_final(self, step: int) -> FinalModel:
        with self._store.committing_folder("final") as folder:
            (folder / "nothing").touch()
        return FinalModel(
            path="final",
            sha256=self._store.folder_digest("final"),
            weights_sha256=NOTHING,
            merged_path=None,
            merged_sha256=None,
        )


def _weights(step: int) -> WeightsRef:
    return WeightsRef(version=PolicyVersion(step), path=f"weights/v{step}", sha256=NOTHING)
