"""What a stage tells of the policy: a step taken, a state saved, an evaluation. References, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mortal_steps.types.references import Below, StageTiming, WeightsRef
from mortal_steps.types.shards import RewardFailure


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class StepResult:
    """What one `train_step` did; committed once, returned again to whoever asks again."""

    step: int
    """The step taken, counted from 0; the policy version after it is `step + 1`."""
    metrics: Mapping[str, float]
    """TRL's metrics of the step (`loss`, `reward`, `kl`, ...), a pure function of the run."""
    optimizer_steps: int
    """Optimizer updates done since the start of the run."""
    batch_sha256: str
    """Digest of the batch consumed."""
    state_id: str
    """id(t+1) = sha256(id(t), batch digest, config fingerprint, weights digest)."""
    random_sha256: str
    """Digest of torch's random streams after the step."""
    weights: WeightsRef | None
    """The version published after the step, where one is due."""
    timing: StageTiming
    weights_digest: str
    """Digest of the trained weights after the step (of an adapter alone, where there is one)."""
    history_id: str
    """Chained id of the batches alone."""
    warnings: tuple[str, ...] = ()
    """What TRL and its libraries warned of for the first time; empty in the record."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Checkpoint:
    """A whole state of the actor: model, optimizer, scheduler, random streams, counters."""

    step: int
    """Train steps done; training goes on with this step."""
    path: Below
    """Folder relative to the run directory."""
    sha256: str
    """Digest of the folder's manifest."""
    state_id: str
    """Chained id of the state it holds."""
    timing: StageTiming


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Evaluation:
    """Scores on the held-out problems."""

    step: int
    """Train steps done by the policy evaluated."""
    num_problems: int
    metrics: Mapping[str, float]
    """Mean score per reward function, `reward`, the weighted sum, and what functions logged."""
    timing: StageTiming
    failures: tuple[RewardFailure, ...] = ()
    """Held-out problems that are not part of the means, because a reward function failed."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class TrainingPlace:
    """Where an actor trains, and in which numbers."""

    device: str
    """`cpu`, or `cuda:0` and the GPU's name."""
    precision: str
    """Type of the weights that are trained, and of autocast where there is one."""
    threads: int
    """Threads of matrix kernels on the CPU."""
    ranks: int = 1
    """Processes that train together; `device` is that of the first."""

    def __str__(self) -> str:
        ranks = f", as the first of {self.ranks} ranks," if self.ranks > 1 else ""
        on_cpu = f" ({self.threads} thread{'s' if self.threads > 1 else ''})"
        where = f"on {self.device}{ranks} in {self.precision}"
        return where + (on_cpu if self.device == "cpu" else "")


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class ActorReady:
    """The actor's answer once it holds its model: where training goes on."""

    step: int
    """Train steps done; the next `train_step` is this one. Lower than asked for where a record that
    leads there is damaged: from here on every step is asked for again, and answered as before."""
    state_id: str
    """Chained id of the state held."""
    weights: tuple[WeightsRef, ...]
    """Every published version that samples the batches of `step` to `step + staleness`, oldest
    first, each once."""
    num_parameters: int
    """Parameters of the model, frozen ones included."""
    place: TrainingPlace
    num_trained: int | None = None
    """Of these, those that are trained."""
    warnings: tuple[str, ...] = ()
    """What a user should know before the next step."""
    timing: StageTiming = field(default_factory=lambda: StageTiming(stage="start_workers", step=0))


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class FinalModel:
    """The trained model, a plain `from_pretrained` folder."""

    path: Below
    """Folder relative to the run directory."""
    sha256: str
    """Digest of the folder's manifest."""
    weights_sha256: str
    """sha256 of its safetensors (of their digests in name order, where there are several)."""
    merged_path: Below | None
    """LoRA with `merge_final`: folder of the merged model."""
    merged_sha256: str | None
    """Digest of that folder's manifest."""

    def folders(self) -> list[tuple[str, str]]:
        found = [(self.path, self.sha256)]
        if self.merged_path is not None and self.merged_sha256 is not None:
            found.append((self.merged_path, self.merged_sha256))
        return found
