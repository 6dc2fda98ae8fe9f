"""The vocabulary of MORTAL. Read this file first.

One training step turns a `Problem` into `Completion`s, scores them into `Rollout`s, gathers the
rollouts of one problem into a `RolloutGroup` and all groups of a step into a `RolloutBatch`, which
the actor trains on. A worked example with a group size of 2 (token ids are made up):

    Problem      id="train-7"  prompt="abc="            columns={"answer": "cba"}
    prompt_ids   [5, 6, 7, 30]
    Completion   token_ids=[7, 6, 5, 1]  logprobs=[-0.1, -0.4, -0.2, -0.0]  text="cba"  (1 is EOS)
    Completion   token_ids=[7, 5]        logprobs=[-0.1, -1.9]              text="ca"
    Rollout      completion + rewards={"exact_match": 1.0} + reward=1.0
    Rollout      completion + rewards={"exact_match": 0.0} + reward=0.0
    RolloutGroup problem + prompt_ids + both rollouts      -> advantages +, - inside the group
    RolloutBatch step=12, policy_version=12, all groups    -> one `train_step`

`logprobs[i]` always belongs to `token_ids[i]` and is the log-probability under the distribution the
token was sampled from (temperature, top-k, top-p and min-p included).

Between tasks travel only the small `*Ref` records at the end of this file; the data they point to
lies in the run store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NewType

PolicyVersion = NewType("PolicyVersion", int)
"""How many train steps made these weights: version 0 is the model the run starts from.

One train step consumes one `RolloutBatch`; with `num_iterations` or several mini-batches it takes
more than one optimizer update (`StepResult.optimizer_steps` counts those).
"""

Prompt = str | list[dict[str, Any]]
"""Plain text, or chat messages as `[{"role": "user", "content": "..."}]`, as in TRL."""

FinishReason = Literal["stop", "length"]
"""`stop`: end-of-sequence or a stop string; `length`: `max_tokens` was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One dataset row."""

    id: str
    """Stable name of the row inside its dataset, such as `train-7`."""
    prompt: Prompt
    """Text or chat messages."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every other column; reward functions receive them as keyword arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled continuation of a prompt."""

    token_ids: Sequence[int]
    """Sampled token ids, the end-of-sequence token included; length T >= 1."""
    logprobs: Sequence[float]
    """Log-probability (nats) of each token under the distribution sampled from; length T."""
    text: str
    """The tokens as text, without special tokens."""
    finish_reason: FinishReason
    """Why sampling ended."""
    seed: int
    """Seed of this completion's random stream, 0 <= seed < 2**63."""
    policy_version: PolicyVersion
    """Version of the weights that sampled it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """A completion and what it earned."""

    completion: Completion
    rewards: Mapping[str, float | None]
    """Score of each reward function; None where the function abstained, as in TRL."""
    reward: float | None
    """Weighted sum over the functions that scored; None when every one abstained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutGroup:
    """The G rollouts of one problem; advantages are relative inside it."""

    problem: Problem
    prompt_ids: Sequence[int]
    """Token ids of the rendered prompt; length P >= 1."""
    rollouts: Sequence[Rollout]
    """Length G = `num_generations`, in generation order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutBatch:
    """All groups of one step, in the order of the step's problems."""

    step: int
    """Index of the train step that consumes the batch, counted from 0."""
    policy_version: PolicyVersion
    """Version of the weights that sampled the batch."""
    groups: Sequence[RolloutGroup]
    """Length `batch_size`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How tokens are drawn; the same meaning for every engine."""

    max_tokens: int
    """Upper bound of tokens per completion, >= 1."""
    temperature: float = 1.0
    """Softmax temperature; 0 is greedy decoding."""
    top_p: float = 1.0
    """Nucleus mass in (0, 1]; 1 keeps every token."""
    top_k: int = 0
    """Number of most likely tokens kept; 0 keeps every token."""
    min_p: float = 0.0
    """Smallest probability kept, relative to the most likely token; 0 keeps every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; they stay part of its tokens."""


# --- shards: what a rollout worker and the reward worker commit to the store ----------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedGroup:
    """The completions of one problem, not yet scored."""

    problem: Problem
    prompt_ids: Sequence[int]
    """Token ids of the rendered prompt; length P >= 1."""
    completions: Sequence[Completion]
    """Length G, in generation order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedShard:
    """One shard's part of a step, as a rollout worker commits it."""

    step: int
    shard: int
    policy_version: PolicyVersion
    groups: Sequence[GeneratedGroup]


FailureKind = Literal["exception", "timeout", "crash", "invalid"]
"""How a call of a reward function failed: it raised; it gave no answer in time; its process ended;
what it returned are no scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardFailure:
    """A problem whose completions are masked because a reward function failed on it."""

    function: str
    problem_id: str
    num_completions: int
    """Completions of the problem that lost their scores."""
    kind: FailureKind
    """Of the last failure."""
    message: str
    """What the last failure was; one line."""
    attempts: int
    """Calls of the function with this problem, all of them failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardedShard:
    """The scores of a `GeneratedShard`, aligned with its groups and completions."""

    step: int
    shard: int
    generation_sha256: str
    """Digest of the generations scored."""
    rewards: Sequence[Sequence[Mapping[str, float | None]]]
    """Per group, per completion: score of each function; None where it abstained. A masked
    completion has None from every function, which takes it out of training."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what reward functions reported through `log_metric`."""
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns that reward functions reported through `log_extra`, one value per completion."""
    failures: tuple[RewardFailure, ...] = ()
    """What was masked; one entry per function and problem."""
    failed_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed, by function; those that a later try made good are counted too."""


# --- references: what travels between tasks; the data itself lies in the run store ---------------
# `weakref_slot`: Prefect knows a result again by its id, and can tell by a weak reference whether
# that is still the same object.


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class StageTiming:
    """Where the time of one stage call went, in seconds."""

    stage: str
    """Name of the stage: the same word in flow, task, worker method and timing table."""
    step: int
    index: int = 0
    """Shard or worker, where the stage is fanned out."""
    busy_s: float = 0.0
    """Inside the worker's method."""
    wait_s: float = 0.0
    """Waiting for a free worker and for the answer's way back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRef:
    """A committed file of the run store."""

    path: str
    """Path relative to the run directory."""
    sha256: str
    """Digest of the file's bytes, hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class BatchRef:
    """The problems of one step."""

    step: int
    file: FileRef
    """Record of `list[Problem]`."""
    num_problems: int
    timing: StageTiming


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class WeightsRef:
    """A published, immutable policy version."""

    version: PolicyVersion
    path: str
    """Folder of the weights, relative to the run directory."""
    sha256: str
    """Digest of the folder's manifest, which lists the digest of every file."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class GenerationRef:
    """The completions of one shard of one step."""

    step: int
    shard: int
    file: FileRef
    num_completions: int
    num_tokens: int
    """Sampled tokens, prompts not counted."""
    policy_version: PolicyVersion
    timing: StageTiming


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class RewardRef:
    """The rewards of one shard of one step, beside the generation they score."""

    step: int
    shard: int
    file: FileRef
    generation: GenerationRef
    reward_sum: float
    """Sum of the weighted rewards of the rollouts that have one."""
    num_scored: int
    """Rollouts with a reward (not None)."""
    timing: StageTiming
    failed_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed, by reward function."""
    masked: Mapping[str, int] = field(default_factory=dict)
    """Completions masked, by the reward function that failed on them."""


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
    """id(t+1) = sha256(id(t), batch digest, config fingerprint)."""
    random_sha256: str
    """Digest of the random streams after the step."""
    weights: WeightsRef | None
    """The version published after the step, where one is due."""
    timing: StageTiming


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Checkpoint:
    """A whole state of the actor: model, optimizer, scheduler, random streams, counters."""

    step: int
    """Train steps done; training goes on with this step."""
    path: str
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
    """Mean score per reward function and `reward`, the weighted sum."""
    timing: StageTiming
    failures: tuple[RewardFailure, ...] = ()
    """Held-out problems that are not part of the means, because a reward function failed."""


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
    timing: StageTiming = StageTiming(stage="start_workers", step=0)


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class FinalModel:
    """The trained model, a plain `from_pretrained` folder."""

    path: str
    """Folder relative to the run directory."""
    sha256: str
    """Digest of the folder's manifest."""
    weights_sha256: str
    """sha256 of its safetensors (of their digests in name order, where there are several)."""
    merged_path: str | None
    """LoRA with `merge_final`: folder of the merged model."""
    merged_sha256: str | None
    """Digest of that folder's manifest."""

    def folders(self) -> list[tuple[str, str]]:
        """Path and digest of each folder."""
        found = [(self.path, self.sha256)]
        if self.merged_path is not None and self.merged_sha256 is not None:
            found.append((self.merged_path, self.merged_sha256))
        return found


# --- requests: what the flow asks of a worker ----------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """Sample completions for the problems [start, stop) of a committed list of problems."""

    stage: str
    """`generate`, or `evaluate` for held-out problems."""
    step: int
    shard: int
    problems: FileRef
    """Record of `list[Problem]`."""
    start: int
    stop: int
    num_generations: int
    """Completions per problem."""
    sampling: SamplingParams
    weights: WeightsRef
    """The only version the worker may sample with."""
    output: str
    """Where the `GeneratedShard` goes, relative to the run directory. If a whole record is there
    already, it is the answer and nothing is sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRequest:
    """Score one shard of completions."""

    stage: str
    """`reward`, or `evaluate` for held-out problems."""
    generation: GenerationRef
    output: str
    """Where the `RewardedShard` goes, relative to the run directory; reused if whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Take one train step."""

    step: int
    rewards: Sequence[RewardRef]
    """One per shard, in shard order."""
    publish: bool
    """Whether the weights after the step are published for sampling."""
