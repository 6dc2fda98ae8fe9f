"""`[rollout]`: how completions are sampled."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from mortal_steps.config.field_metadata import NO_NUMBERS, STATE, Decides, Trl
from mortal_steps.config.plain_words import complaint
from mortal_steps.config.section import Options, Section
from mortal_steps.orchestration.batch_sources.table import (
    BATCH_SOURCES,
    GENERATE,
    BatchSourceName,
    SourceKind,
)
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES, EngineKind, EngineName
from mortal_steps.rollout.episodes.table import SINGLE_TURN, EpisodesName
from mortal_steps.rollout.weight_sync.table import DIRECT, WEIGHT_SYNC, WeightSyncName
from mortal_steps.users_code.loading import import_code

SamplingType = Literal["float32", "bfloat16", "float16"]
"""Data type of a sampler's weights."""
TOLERANCE = 1e-3
"""Nats by which log-probabilities of the same tokens and weights may differ in float32."""
HALF_PRECISION_TOLERANCE = 0.3
"""The same of a single token in bfloat16. Logits between 16 and 64 lie 0.125 or 0.25 apart there,
so this is no bound: of tens of tokens, one may differ by more in two correct implementations."""
HALF_PRECISION_MEAN = 0.1
"""The same of their mean, in which roundings cancel."""


class SourceOptions(Section, extra="allow"):
    """`[rollout.source_options]`: what a batch source is set up with. One that takes anything has
    this class itself; all of it then belongs to the run's fingerprint."""

    @property
    def first_port(self) -> int | None:
        """The first of the ports at which rollout workers serve the policy to environments
        outside; None: they do not."""
        return None

    def check(self, context: int) -> None:
        """Raise `ConfigError` for what does not fit a model with a context of so many tokens."""


class RolloutConfig(Section):
    """`[rollout]`: how completions are sampled."""

    engine: Annotated[EngineName | None, Decides("use_vllm")] = None
    """Inference engine: `vllm`, `transformers` or, on this machine, an engine of your own
    (`file.py:name` or `module:name`). Default: vllm if it is installed for the rollout workers when
    the run begins (on Modal it is), otherwise transformers."""
    dtype: Annotated[SamplingType | Literal["auto"] | None, STATE] = None
    """Data type that rollout workers sample in. The actor casts the weights to it once, when it
    publishes them; training, checkpoints and the final model keep `model.dtype`. Default (`auto`):
    bfloat16 where both the actor and the rollout workers of a new run have a GPU and float32
    weights are trained under bf16 autocast; otherwise `model.dtype`, as in runs that began before
    there was this key."""
    num_rollout_workers: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1)
    """Number of rollout worker processes. Default: 2; on a machine with GPUs, one for each that the
    actor does not use, and one beside the actor if that is the only GPU; single-node mode has
    exactly 1. The number of workers does not affect a run's bits."""
    num_shards: int | None = Field(None, ge=1)
    """Number of shards that a batch is split into. Default: one for each rollout worker with which
    the run begins, up to `training.batch_size`. Each shard is sampled as a whole, so the number of
    shards affects a run's bits; the number of workers does not."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens to sample per completion. Default: `training.max_completion_length`, up to half
    of the model's context. If it is larger than `training.max_completion_length`, reward functions
    see text that is not trained on."""
    temperature: Annotated[float, Trl("temperature")] = Field(1.0, gt=0)
    """Sampling temperature; the trainer computes its log-probabilities at the same temperature."""
    top_p: Annotated[float, Decides("top_p")] = Field(1.0, gt=0, le=1)
    """Probability mass of nucleus sampling; 1 keeps every token. Recorded log-probabilities are
    those over the whole vocabulary, as the trainer computes them, whatever `top_p`, `top_k` and
    `min_p` keep."""
    top_k: Annotated[int, Decides("top_k")] = Field(0, ge=0)
    """Sample from the k most likely tokens; 0 keeps every token."""
    min_p: Annotated[float, Decides("min_p")] = Field(0.0, ge=0, le=1)
    """Drop tokens less likely than this fraction of the most likely token's probability; 0 keeps
    every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion. One that ends with a stop string is not truncated, whatever
    TRL makes of its last token."""
    seeds: Literal["request", "engine"] = "request"
    """What the random numbers of a completion depend on. `request`: each completion has a seed of
    its own, so that its tokens do not depend on what is sampled beside it. `engine`: one seed for
    all completions of a shard, which then repeats as a whole or not at all (vllm alone)."""
    share_prefill: bool = False
    """Compute a prompt once for all of its completions (transformers alone; vLLM shares what
    prompts have in common by itself). It moves the last bits of log-probabilities, so the tokens of
    a run may be others than without; the run repeats itself to the bit all the same. A model whose
    cache cannot be repeated is refused when it is to sample first."""
    weight_sync: Annotated[WeightSyncName | None, NO_NUMBERS] = None
    """How the engine receives new weights. `reload`: the memory of the old ones is released first;
    `volume`: the new ones are read over them; `checkpoint`: a new engine starts; `direct`: as
    `volume`, from shared memory (/dev/shm) of the machine that the actor and the rollout workers
    are on; or a way of your own (`file.py:name` or `module:name`). `transformers` replaces weights
    in place, whichever way is chosen. Default: `volume` if rollout workers have a GPU when the run
    begins and do not sleep while the actor trains, otherwise `reload`. It does not affect a run's
    bits."""
    sleep_while_training: Annotated[bool, NO_NUMBERS, Decides("vllm_enable_sleep_mode")] = False
    """Let the engine of each rollout worker give the GPU's memory back once a step is sampled, and
    take it again with the next weights: for rollout workers that share a GPU with the actor (vllm
    alone)."""
    sync_weights_every: int = Field(1, ge=1)
    """Publish new weights to the rollout workers every N steps."""
    staleness: int = Field(0, ge=0)
    """Number of steps by which generation runs ahead of training; 0: they alternate."""
    canary_tolerance: Annotated[float, NO_NUMBERS] = Field(TOLERANCE, gt=0)
    """How far a rollout worker's log-probabilities of the probe tokens may be from the actor's, in
    nats, on average. Below single precision at least 0.1. Where the engine cannot compare every
    tensor with the published one, no token may differ by more than this, or 0.3 below single
    precision, times its log-probability (if that is below -1)."""
    engine_options: Options = Field(default_factory=dict)
    """Additional keyword arguments for the engine (for vLLM: of `LLM(...)`)."""
    episodes: EpisodesName = SINGLE_TURN
    """How a completion comes about. `single_turn`: the model answers the prompt once; or a class of
    your own (`file.py:name` or `module:name`), in which it answers in several turns."""
    episodes_options: Options = Field(default_factory=dict)
    """Settings for episodes of your own."""
    source: BatchSourceName = GENERATE
    """Where the rollouts of each step come from. `generate`: the run's own rollout workers sample
    and its reward functions score; `atropos`: an Atropos API server has them from its environments
    (docs/atropos.md); or a batch source of your own (`file.py:name` or `module:name`)."""
    source_options: Options = Field(default_factory=dict)
    """Settings for `atropos` or a batch source of your own."""

    @property
    def ports(self) -> range:
        """Ports at which rollout workers serve the policy to environments outside."""
        first = self.source_settings.first_port
        return range(first, first + (self.num_rollout_workers or 1)) if first else range(0)

    @property
    def source_kind(self) -> SourceKind:
        return BATCH_SOURCES.entry(self.source)

    @property
    def source_settings(self) -> SourceOptions:
        """`source_options` as the source takes them; raises `ValueError` for other ones."""
        named = self.source_kind.options
        kind = SourceOptions if named is None else import_code(named, "rollout.source")
        try:
            return kind.model_validate(self.source_options)
        except ValidationError as error:
            raise ValueError(complaint(error.errors()[0], "rollout.source_options")) from None

    @property
    def has_samplers(self) -> bool:
        """Whether rollouts of a source of MORTAL's are sampled with the run's own workers."""
        return self.source == GENERATE or bool(self.ports)

    @property
    def engine_kind(self) -> EngineKind:
        """What is known of the engine; before it is settled, of the one that is always there."""
        return ENGINES.entry(self.engine or ALWAYS_THERE)

    def published_in(self, trained_in: str) -> SamplingType | None:
        """Return the type that weights are published in, if it is not the one they are trained
        in."""
        if self.dtype is None or self.dtype == "auto" or self.dtype == trained_in:
            return None
        return self.dtype

    @property
    def shares_weights(self) -> bool:
        """Whether the actor publishes weights in shared memory."""
        return self.weight_sync == DIRECT


def check_one_machine(rollout: RolloutConfig, elsewhere: str | None) -> None:
    """Raise `ValueError` for settings of workers that share a GPU or memory with the actor, where
    they share none, or have something else to do meanwhile. `elsewhere`: the place by its name, if
    that is not this machine."""
    shared = {}
    if rollout.sleep_while_training:
        shared["rollout.sleep_while_training = true"] = "leave it out"
    if rollout.shares_weights:
        others = ", ".join(repr(name) for name in WEIGHT_SYNC if name != DIRECT)
        shared[f"rollout.weight_sync = {DIRECT!r}"] = f"use one of {others}"
    for asked, remedy in shared.items():
        if elsewhere:
            raise ValueError(
                f"{asked} is for workers on one machine, and compute.backend = {elsewhere!r} runs "
                f"them on others; {remedy}"
            )
        if not rollout.has_samplers:
            raise ValueError(
                f"{asked} is for rollouts that the run's own workers sample, and rollout.source is "
                f"{rollout.source!r}; {remedy}"
            )
    if rollout.ports and elsewhere:
        raise ValueError(
            f"rollout.source_options.port = {rollout.ports[0]} is a port of this machine, and with "
            f"compute.backend = {elsewhere!r} the rollout workers are elsewhere; leave it out"
        )
    if rollout.sleep_while_training and rollout.ports:
        raise ValueError(
            "rollout.sleep_while_training = true lets rollout workers sleep while the actor "
            f"trains, and with rollout.source_options.port = {rollout.ports[0]} environments may "
            "ask them at any time; leave one of the two out"
        )
    if rollout.sleep_while_training and rollout.staleness:
        raise ValueError(
            "rollout.sleep_while_training = true lets rollout workers sleep while the actor "
            f"trains, and with rollout.staleness = {rollout.staleness} they sample meanwhile; set "
            "one of the two back to its default"
        )
