"""`[training]`: what TRL trains with, under the names that TRL has for its options."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS, STATE, Decides, StateOptions, Trl
from mortal_steps.config.section import Options, Section
from mortal_steps.config.trl_options import table_in
from mortal_steps.config.until import UntilConfig

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
"""TRL's losses of GRPO, by the papers that introduced them.

- grpo: DeepSeekMath, https://arxiv.org/abs/2402.03300
- dapo: DAPO, https://arxiv.org/abs/2503.14476
- dr_grpo: Understanding R1-Zero-Like Training, https://arxiv.org/abs/2503.20783
- bnpo: the mean over all tokens of the local batch; TRL names no paper for it
- cispo: MiniMax-M1, https://arxiv.org/abs/2506.13585
- sapo: Soft Adaptive Policy Optimization, https://arxiv.org/abs/2511.20347
- luspo: Length-Unbiased Sequence Policy Optimization, https://arxiv.org/abs/2602.05261
- vespo: VESPO, https://arxiv.org/abs/2602.10693

GSPO (https://arxiv.org/abs/2507.18071) is no loss of its own: it is
`importance_sampling_level = "sequence"` in `[training.trl]`.
"""

Published = Literal["adapter", "merged"]
"""What rollout workers are given of a LoRA run."""

USUAL_LAYERS = "peft-default"
"""As `training.lora.target_modules`: what PEFT adapts where it is given none."""
LOADABLE = {
    *("use_rslora", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("init_lora_weights", "ensure_weight_tying"),
}
"""PEFT's options with which an adapter is still two matrices for a layer, scaled alike: every
engine computes it beside its base."""
LEAVES_BASE = (True, False, "gaussian", "orthogonal")
"""Values of `init_lora_weights` with which PEFT does not change the base."""
FULL = "full"
"""As `training.sharding`: the model is dealt out."""
GPU_ROWS = 8
"""Completions in a micro-batch on a GPU, at most, by default."""

EMBEDDINGS = (
    *("lm_head", "model.embed_tokens", "model.language_model.embed_tokens", "embed_out"),
    *("gpt_neox.embed_in", "transformer.wte", "transformer.wpe", "transformer.word_embeddings"),
)
"""What models call their input and output embeddings."""

OPTIONS_OF_STATE = StateOptions(
    "optim", "optim_args", "optim_target_modules", "fp16", "model_init_kwargs"
)


class LoraConfig(Section):
    """`[training.lora]`: shape of the LoRA adapter, used with `use_lora`.

    https://arxiv.org/abs/2106.09685
    """

    r: Annotated[int, STATE] = Field(16, ge=1)
    """Rank of the adapter's matrices."""
    alpha: Annotated[int, STATE] = Field(32, ge=1)
    """The adapter's output is scaled by alpha / r."""
    dropout: float = Field(0.05, ge=0, lt=1)
    """Dropout probability of the adapter's input."""
    target_modules: Annotated[str | tuple[str, ...], STATE] = "all-linear"
    """Layers that get an adapter: `all-linear`, `peft-default` (those that PEFT adapts in models of
    this type where it is given none), a list of their names, or, as a text, a regular expression
    that fits their whole paths."""
    peft: Annotated[Options, STATE] = Field(default_factory=dict)
    """Any other option of PEFT's LoraConfig, such as `use_rslora`, `use_dora`, `modules_to_save`
    or `rank_pattern`. PEFT checks it itself."""
    publish: Annotated[Published | None, STATE] = None
    """What the rollout workers receive. `adapter`: the adapter alone, which they compute beside its
    base; `merged`: the whole model, the adapter added to its weights. Default: adapter; merged for
    an engine of your own, and for what engines cannot compute beside a base, such as DoRA,
    `modules_to_save` or the adapter of a quantized model."""
    merge_final: bool = False
    """At the end, also save the model with the adapter merged in."""

    @property
    def only_merged(self) -> str | None:
        """The first PEFT option by which the adapter is more than engines compute, if any."""
        without = {"bias": "none"}
        for name, value in self.peft.items():
            loadable = name in LOADABLE and (name != "init_lora_weights" or value in LEAVES_BASE)
            if value and not loadable and value != without.get(name):
                return name
        return None

    def adapted_embeddings(self) -> list[str]:
        """Those of the usual names of embeddings that `target_modules` stands for, as PEFT reads
        it: a text is a regular expression, and `all-linear` leaves them out."""
        targets = self.target_modules
        if targets in ("all-linear", USUAL_LAYERS):
            return []
        if isinstance(targets, str):
            return [name for name in EMBEDDINGS if re.fullmatch(targets, name)]
        return [name for name in EMBEDDINGS if f".{name}".endswith(tuple(f".{t}" for t in targets))]

    @field_validator("target_modules")
    @classmethod
    def _a_pattern(cls, targets: str | tuple[str, ...]) -> str | tuple[str, ...]:
        try:
            re.compile(targets if isinstance(targets, str) else "")
        except re.error as error:
            raise ValueError(f"is no regular expression ({error}); write one, or names") from None
        return targets


class TrainingConfig(Section):
    """`[training]`: steps, batches and loss, and the options of TRL's trainer."""

    max_steps: Annotated[int, Decides("max_steps")] = -1
    """Number of train steps, one batch each; -1: as many as `num_epochs` takes."""
    num_epochs: Annotated[int | float, Decides("num_train_epochs")] = Field(
        5, gt=0, allow_inf_nan=False
    )
    """Passes over the dataset, such as 3 or 0.5; used only with `max_steps = -1`."""
    batch_size: Annotated[int, Decides("per_device_train_batch_size", "generation_batch_size")] = (
        Field(8, ge=1)
    )
    """Prompts per train step."""
    num_generations: Annotated[
        int, Trl("num_generations"), Decides("per_device_train_batch_size", "generation_batch_size")
    ] = Field(4, ge=1)
    """Completions per prompt (the group size G of GRPO and RLOO, which need 2 or more). With
    `algorithm.type = "distillation"`, the default is 1."""
    learning_rate: Annotated[float, Trl("learning_rate")] = Field(5e-6, ge=0)
    """Peak learning rate of the schedule named by `trl.lr_scheduler_type`."""
    loss_type: Annotated[LossType, Trl("loss_type")] = "dapo"
    """TRL's loss function of GRPO; docs/design/sources.md links the paper behind each."""
    beta: Annotated[float, Trl("beta")] = Field(0.0, ge=0)
    """Coefficient of the KL penalty, which GRPO adds to the loss and RLOO takes from the reward;
    with 0, no reference model is loaded."""
    epsilon: Annotated[float, Trl("epsilon")] = Field(0.2, ge=0)
    """Clipping range of the probability ratio."""
    epsilon_high: Annotated[float | None, Trl("epsilon_high")] = Field(None, ge=0)
    """Upper clipping range; default: `epsilon`. For cispo, choose about 5."""
    scale_rewards: Annotated[Literal["group", "batch", "none"], Trl("scale_rewards")] = "group"
    """GRPO: divide advantages by the standard deviation of the rewards within the group, within the
    batch, or not at all."""
    num_iterations: Annotated[int, Trl("num_iterations")] = Field(1, ge=1)
    """Optimization passes over each batch."""
    gradient_accumulation_steps: Annotated[int | None, Decides("gradient_accumulation_steps")] = (
        Field(None, ge=1)
    )
    """Micro-batches per optimizer update. Default: 1 on a CPU; on a GPU so many that a micro-batch
    has at most 8 completions. It decides how sums of gradients round, so a run keeps the number
    with which it began."""
    ranks: Annotated[int, Decides("per_device_train_batch_size")] = Field(1, ge=1)
    """Processes that train the model together, each on a GPU of its own and with a part of the
    batch. They decide how sums round, so a run keeps their number; a fork may have another."""
    sharding: Literal["none", "full"] = "none"
    """With several ranks, `none`: each has the whole model, as with TRL under DDP. `full`: weights,
    gradients and optimizer are dealt out to them, as under FSDP2, so that larger models fit. It
    decides how sums round, too."""
    rank_timeout_s: Annotated[float, NO_NUMBERS] = Field(600, gt=0)
    """How long a rank waits for the others, in seconds, before all of them are begun anew and the
    step is taken again."""
    max_idle_steps: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1)
    """Steps in a row from which nothing can be learned, after which the run saves its state and
    stops: no completion has a reward, or the rewards of each group are equal, or the gradient
    is 0. By default it goes on, and a notice says so."""
    max_completion_length: Annotated[int, Trl("max_completion_length")] = Field(1024, ge=1)
    """Longest completion to train on, in tokens; the rest is cut off before the loss."""
    gradient_checkpointing: Annotated[bool, Trl("gradient_checkpointing")] = True
    """Use less memory at the price of more computation."""
    importance_sampling_correction: Annotated[
        bool | None, Decides("vllm_importance_sampling_correction")
    ] = None
    """Correct for the difference between the sampler's and the trainer's log-probabilities by
    truncated importance sampling, as TRL does with vLLM. Default: on with every engine but
    transformers, whenever the sampling weights may be older than the trained ones or are of another
    type (`rollout.dtype`), and with every other source of rollouts. RLOO has no such correction."""
    deterministic: bool = True
    """Train with deterministic kernels on a GPU. Without them some operations are faster, but a run
    that is killed and resumed no longer ends with the same bits. On a CPU all kernels are
    deterministic."""
    use_lora: Annotated[bool, STATE] = False
    """Train a LoRA adapter instead of the whole model."""
    lora: LoraConfig = LoraConfig()
    until: Annotated[UntilConfig, NO_NUMBERS] = UntilConfig()
    trl: Annotated[Options, OPTIONS_OF_STATE] = Field(default_factory=dict)
    """Any other option of TRL's GRPOConfig, or of the algorithm's own, which checks it itself."""

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _as_trl_once_had_it(cls, over: object) -> object:
        return {True: "group", False: "none"}[over] if isinstance(over, bool) else over

    @field_validator("num_epochs")
    @classmethod
    def _whole_where_it_is(cls, num_epochs: int | float) -> int | float:
        return int(num_epochs) if num_epochs == int(num_epochs) else num_epochs

    @field_validator("max_steps")
    @classmethod
    def _some_steps(cls, max_steps: int) -> int:
        if max_steps == 0 or max_steps < -1:
            raise ValueError("must be at least 1, or -1 to follow num_epochs")
        return max_steps

    @model_validator(mode="after")
    def _trl_can_split_the_batch(self) -> Self:
        given = self.trl.get("steps_per_generation", 1)
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise ValueError(
                f"trl.steps_per_generation = {given!r} must be a whole number of at least 1: into "
                "so many micro-batches a batch is cut"
            )
        rows, pieces = self.rows, self.steps_per_generation
        if rows % pieces:
            near = max(number for number in range(1, pieces) if rows % number == 0)
            raise ValueError(
                f"batch_size x num_generations = {rows} rows do not divide into {pieces} "
                f"micro-batches; TRL would silently drop {rows % pieces} of them. Choose "
                "gradient_accumulation_steps (or trl.steps_per_generation) that divides "
                f"{rows}, such as {near}"
            )
        if rows // pieces % self.ranks:
            raise ValueError(
                f"ranks = {self.ranks} does not divide the {rows // pieces} rows of a micro-batch "
                f"(batch_size x num_generations = {rows}, in {pieces}); choose batch_size, "
                "num_generations or gradient_accumulation_steps so that each rank has as many rows"
            )
        if pieces * self.num_iterations % self.accumulation_steps:
            raise ValueError(
                f"gradient_accumulation_steps = {self.accumulation_steps} does not divide "
                f"steps_per_generation x num_iterations = {pieces * self.num_iterations}; an "
                "optimizer update would reach over two batches"
            )
        return self

    @property
    def accumulation_steps(self) -> int:
        """`gradient_accumulation_steps`, 1 before it is settled."""
        return self.gradient_accumulation_steps or 1

    def accumulation_on_gpu(self, rows: int) -> int:
        """Return the default of `gradient_accumulation_steps` on a GPU: the least that divides a
        batch of so many rows into micro-batches of at most `GPU_ROWS`.

        Where the loss is a mean over the micro-batch's own tokens, or micro-batches are cut in
        another way, it is 1.
        """
        if self.loss_type == "bnpo" or "steps_per_generation" in self.trl:
            return 1
        own = rows // self.ranks
        return next(n for n in range(1, own + 1) if own % n == 0 and own // n <= GPU_ROWS)

    @property
    def rows(self) -> int:
        """Completions per train step."""
        return self.batch_size * self.num_generations

    def divides(self, num_groups: int) -> bool:
        """Whether a batch of so many groups can be cut into micro-batches, and these dealt out to
        the ranks: TRL drops what is left over."""
        return num_groups * self.num_generations % (self.steps_per_generation * self.ranks) == 0

    @property
    def publishes_adapter(self) -> bool:
        """Whether rollout workers receive a LoRA adapter alone."""
        return self.use_lora and self.lora.publish == "adapter"

    @property
    def template_options(self) -> dict[str, Any]:
        """`trl.chat_template_kwargs`; raises as `table_in`."""
        return table_in(self.trl, "chat_template_kwargs", "{enable_thinking = false}")

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches that one batch is cut into (TRL's `steps_per_generation`)."""
        return int(self.trl.get("steps_per_generation", self.accumulation_steps))

    @property
    def optimizer_steps_per_batch(self) -> int:
        """Optimizer updates per train step."""
        micro_steps = self.steps_per_generation * self.num_iterations
        return micro_steps // self.accumulation_steps
