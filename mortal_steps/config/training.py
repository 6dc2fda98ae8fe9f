"""`[training]`: TRL's GRPO, and which of its options have a key of their own."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from mortal_steps.config.section import Options, Section

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
"""TRL's losses, by the papers that introduced them.

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

TRL_OPTIONS_WE_SET = {
    "output_dir": "--runs-dir",
    "per_device_train_batch_size": "training.batch_size and training.num_generations",
    "generation_batch_size": "training.batch_size and training.num_generations",
    "num_generations": "training.num_generations",
    "max_steps": "training.max_steps",
    "num_train_epochs": "training.num_epochs",
    "learning_rate": "training.learning_rate",
    "loss_type": "training.loss_type",
    "beta": "training.beta",
    "epsilon": "training.epsilon",
    "epsilon_high": "training.epsilon_high",
    "scale_rewards": "training.scale_rewards",
    "num_iterations": "training.num_iterations",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "max_completion_length": "training.max_completion_length",
    "reward_weights": "rewards.weights",
    "seed": "seed",
    "data_seed": "seed",
    "save_strategy": "checkpoints.save_steps",
    "save_steps": "checkpoints.save_steps",
    "eval_strategy": "evaluation.eval_steps",
    "eval_steps": "evaluation.eval_steps",
    "report_to": "logging.use_wandb",
    "use_vllm": "rollout.engine",
    "vllm_mode": "compute.modal.vllm_mode",
    "vllm_importance_sampling_correction": "training.importance_sampling_correction",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "min_p": "rollout.min_p",
    "model_init_kwargs": "model.dtype and model.trust_remote_code",
}
"""GRPOConfig options with a key of their own here; `[training.trl]` refuses them."""


class LoraConfig(Section):
    """`[training.lora]`: shape of the LoRA adapter, used with `use_lora`.

    https://arxiv.org/abs/2106.09685
    """

    r: int = Field(16, ge=1)
    """Rank of the adapter's matrices."""
    alpha: int = Field(32, ge=1)
    """The adapter's output is scaled by alpha / r."""
    dropout: float = Field(0.05, ge=0, lt=1)
    """Dropout probability of the adapter's input."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Modules that get an adapter: `all-linear`, or their names."""
    merge_final: bool = False
    """At the end, also save the model with the adapter merged in."""


class TrainingConfig(Section):
    """`[training]`: TRL's GRPO, stepped from outside."""

    max_steps: int = -1
    """Number of train steps, one batch each; -1: as many as `num_epochs` takes."""
    num_epochs: int = Field(5, ge=1)
    """Passes over the dataset; used only with `max_steps = -1`."""
    batch_size: int = Field(8, ge=1)
    """Prompts per train step."""
    num_generations: int = Field(4, ge=2)
    """Completions per prompt (the group size G of GRPO)."""
    learning_rate: float = Field(5e-6, ge=0)
    """Peak learning rate of the schedule named by `trl.lr_scheduler_type`."""
    loss_type: LossType = "dapo"
    """TRL's loss function; docs/design/sources.md links the paper behind each."""
    beta: float = Field(0.0, ge=0)
    """Coefficient of the KL penalty; with 0, no reference model is loaded."""
    epsilon: float = Field(0.2, ge=0)
    """Clipping range of the probability ratio."""
    epsilon_high: float | None = Field(None, ge=0)
    """Upper clipping range; default: `epsilon`. For cispo, choose about 5."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the standard deviation of the rewards within the group, within the
    batch, or not at all."""
    num_iterations: int = Field(1, ge=1)
    """Optimization passes over each batch."""
    gradient_accumulation_steps: int = Field(1, ge=1)
    """Micro-batches per optimizer update."""
    max_completion_length: int = Field(1024, ge=1)
    """Longest completion to train on, in tokens; the rest is cut off before the loss."""
    gradient_checkpointing: bool = True
    """Use less memory at the price of more computation."""
    importance_sampling_correction: bool | None = None
    """Correct for the difference between the sampler's and the trainer's log-probabilities by
    truncated importance sampling, as TRL does with vLLM. Default: on with the vllm engine and
    whenever the sampling weights may be older than the trained ones."""
    use_lora: bool = False
    """Train a LoRA adapter instead of the whole model."""
    lora: LoraConfig = LoraConfig()
    trl: Options = Field(default_factory=dict)
    """Any other option of TRL's GRPOConfig, which checks it itself."""

    @field_validator("scale_rewards", mode="before")
    @classmethod
    def _as_trl_once_had_it(cls, over: object) -> object:
        return {True: "group", False: "none"}[over] if isinstance(over, bool) else over

    @field_validator("max_steps")
    @classmethod
    def _some_steps(cls, max_steps: int) -> int:
        if max_steps == 0 or max_steps < -1:
            raise ValueError("must be at least 1, or -1 to follow num_epochs")
        return max_steps

    @model_validator(mode="after")
    def _trl_can_split_the_batch(self) -> Self:
        for option in self.trl:
            if option in TRL_OPTIONS_WE_SET:
                raise ValueError(f"trl.{option} is set by {TRL_OPTIONS_WE_SET[option]}; use that")
        rows, pieces = self.rows, self.steps_per_generation
        if rows % pieces:
            raise ValueError(
                f"batch_size x num_generations = {rows} rows do not divide into {pieces} "
                f"micro-batches; TRL would silently drop {rows % pieces} of them. Choose "
                "gradient_accumulation_steps (or trl.steps_per_generation) that divides it"
            )
        if self.steps_per_generation * self.num_iterations % self.gradient_accumulation_steps:
            raise ValueError(
                f"gradient_accumulation_steps = {self.gradient_accumulation_steps} does not divide "
                f"steps_per_generation x num_iterations = {pieces * self.num_iterations}; an "
                "optimizer update would reach over two batches"
            )
        return self

    @property
    def rows(self) -> int:
        """Completions per train step."""
        return self.batch_size * self.num_generations

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches that one batch is cut into (TRL's `steps_per_generation`)."""
        return int(self.trl.get("steps_per_generation", self.gradient_accumulation_steps))

    @property
    def optimizer_steps_per_batch(self) -> int:
        """Optimizer updates per train step."""
        micro_steps = self.steps_per_generation * self.num_iterations
        return micro_steps // self.gradient_accumulation_steps
