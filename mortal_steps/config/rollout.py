"""`[rollout]`, `[rewards]`, `[evaluation]`: how completions are sampled and scored."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from mortal_steps.config.section import Options, Section

Engine = Literal["transformers", "vllm"]
WeightSyncMethod = Literal["reload", "volume", "direct", "checkpoint"]


class RolloutConfig(Section):
    """`[rollout]`: how completions are sampled."""

    engine: Engine | None = None
    """Inference engine. Default: vllm if it is installed for the rollout workers when the run
    begins (on Modal it is), otherwise transformers."""
    num_rollout_workers: int | None = Field(None, ge=1)
    """Number of rollout worker processes. Default: 2; single-node mode has exactly 1. The number of
    workers does not affect a run's bits."""
    num_shards: int | None = Field(None, ge=1)
    """Number of shards that a batch is split into. Default: one for each rollout worker with which
    the run begins, up to `training.batch_size`. Each shard is sampled as a whole, so the number of
    shards affects a run's bits; the number of workers does not."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens to sample per completion. Default: `training.max_completion_length`, up to half
    of the model's context. If it is larger than `training.max_completion_length`, reward functions
    see text that is not trained on."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature; the trainer computes its log-probabilities at the same temperature."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Probability mass of nucleus sampling; 1 keeps every token."""
    top_k: int = Field(0, ge=0)
    """Sample from the k most likely tokens; 0 keeps every token."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Drop tokens less likely than this fraction of the most likely token's probability; 0 keeps
    every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion."""
    weight_sync_method: WeightSyncMethod = "reload"
    """How vLLM receives new weights. `reload`: it sleeps, wakes up and reloads; `volume`: it
    reloads from the store; `direct`: in memory (not implemented yet); `checkpoint`: a new engine
    starts."""
    sync_weights_every: int = Field(1, ge=1)
    """Publish new weights to the rollout workers every N steps."""
    staleness: int = Field(0, ge=0)
    """Number of steps by which generation runs ahead of training; 0: they alternate."""
    canary_tolerance: float = Field(1e-3, gt=0)
    """Largest allowed difference, in nats, between a rollout worker's and the actor's
    log-probabilities of the probe tokens."""
    engine_options: Options = Field(default_factory=dict)
    """Additional keyword arguments for the engine (for vLLM: of `LLM(...)`)."""


class RewardsConfig(Section):
    """`[rewards]`: reward functions, which are plain callables with TRL's signature."""

    functions: tuple[str, ...] = ()
    """Reward functions, each written as `module:function` or `path/file.py:function`."""
    weights: tuple[float, ...] | None = None
    """Weight of each function's score in the sum; default: 1 each."""
    rehearse: bool = True
    """Call each function once with a made-up completion before anything else starts."""
    timeout_s: float = Field(60.0, gt=0)
    """Time limit for one call of one function, in seconds."""
    retries: int = Field(2, ge=0)
    """How often to call a function again after it raised, hung, ended its process or returned
    something that is not a list of scores."""
    on_error: Literal["raise", "mask"] = "raise"
    """What to do when the retries fail as well: `raise` stops the run; `mask` excludes the problems
    on which the function fails from training."""
    accept_changed: str | None = None
    """Digest of the edited reward sources with which the run may continue. The error that stopped
    the run names it; `mortal resume --accept-changed-rewards` sets it."""

    @field_validator("functions", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, functions: Any) -> Any:
        return (functions,) if isinstance(functions, str) else functions


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: int = Field(0, ge=0)
    """Evaluate every N steps and at the end; 0: never."""
    on_start: bool = True
    """Also evaluate before the first step."""
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature of evaluations; 0 decodes greedily."""
