"""`[rollout]`, `[rewards]`, `[evaluation]`: how completions are sampled and scored."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from mortal_steps.config.batch_sources import GENERATE, BatchSourceName
from mortal_steps.config.engines import EngineName
from mortal_steps.config.section import Options, Section
from mortal_steps.config.weight_sync import WeightSyncName


class RolloutConfig(Section):
    """`[rollout]`: how completions are sampled."""

    engine: EngineName | None = None
    """What samples: 'vllm', 'transformers' or, on this machine, an engine of yours, as
    'module:name'. Default: vllm where the rollout workers have it (on Modal they do), else
    transformers, as it is when the run begins."""
    num_rollout_workers: int | None = Field(None, ge=1)
    """Worker processes that sample; default 2, and 1 in single-node mode, which has no more. Their
    number does not change a run's numbers."""
    num_shards: int | None = Field(None, ge=1)
    """Parts a batch is dealt out in; default: one for each rollout worker that the run begins
    with, `training.batch_size` at most. A shard is sampled in one piece, so this number belongs
    to the run's numbers and the number of workers does not."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens per generated completion; default: `training.max_completion_length`, at most half
    of the model's context. Reward functions see more than is trained on where it is larger."""
    temperature: float = Field(1.0, gt=0)
    """Softmax temperature of sampling; the trainer's log-probabilities use the same."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus mass; 1 keeps every token."""
    top_k: int = Field(0, ge=0)
    """0 keeps every token."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Smallest probability kept, relative to the most likely token; 0 keeps every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion."""
    weight_sync_method: WeightSyncName = "reload"
    """How the engine takes new weights: 'reload' gives the memory of the old ones back first,
    'volume' reads the new ones over them, 'checkpoint' starts a new engine; or a way of yours, as
    'module:name'. transformers replaces them in place with each of the three."""
    sync_weights_every: int = Field(1, ge=1)
    """Publish new weights to the rollout workers every N steps."""
    staleness: int = Field(0, ge=0)
    """Steps that generation may run ahead of training."""
    canary_tolerance: float = Field(1e-3, gt=0)
    """Largest difference (nats) between a worker's and the actor's logprobs of the probe."""
    engine_options: Options = Field(default_factory=dict)
    """Further keyword arguments of the engine (vLLM: of `LLM(...)`)."""
    source: BatchSourceName = GENERATE
    """Where the rollouts of a step come from: 'generate', the run's own workers; or a source of
    yours, as 'module:name'."""
    source_options: Options = Field(default_factory=dict)
    """What a source of yours reads here."""


class RewardsConfig(Section):
    """`[rewards]`: callables exactly as TRL's."""

    functions: tuple[str, ...] = ()
    """`module:function` or `path/file.py:function`."""
    weights: tuple[float, ...] | None = None
    """One per function; default 1 each."""
    rehearse: bool = True
    """Call each function once on a made-up completion before anything is started."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds that one call of one function may take."""
    retries: int = Field(2, ge=0)
    """Further calls of a function that raised, hung, ended its process or returned no scores."""
    on_error: Literal["raise", "mask"] = "raise"
    """When those fail too: stop the run, or leave the problems that a function fails on out of
    training."""
    accept_changed: str | None = None
    """Digest of changed sources that the run may go on with, as the error that stopped it tells;
    `mortal resume --accept-changed-rewards` sets it."""

    @field_validator("functions", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, functions: Any) -> Any:
        return (functions,) if isinstance(functions, str) else functions


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: int = Field(0, ge=0)
    """Evaluate every N steps and at the end; 0 never."""
    on_start: bool = True
    """Also evaluate before the first step."""
    temperature: float = Field(0.0, ge=0)
    """0 is greedy decoding."""
