"""`[training]`: TRL's GRPO, and which of its options have a key of their own."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from mortal_steps.config.section import Options, Section

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]

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
    """`[training.lora]`: adapter shape, used with `use_lora`."""

    r: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.05, ge=0, lt=1)
    target_modules: str | tuple[str, ...] = "all-linear"
    merge_final: bool = False
    """Save the merged model beside the adapter at the end."""


class TrainingConfig(Section):
    """`[training]`: TRL's GRPO, stepped from outside."""

    max_steps: int = -1
    """Train steps, one batch each; -1 follows `num_epochs`."""
    num_epochs: int = Field(5, ge=1)
    """Passes over the dataset, with max_steps = -1."""
    batch_size: int = Field(8, ge=1)
    """Prompts per train step."""
    num_generations: int = Field(4, ge=2)
    """Completions per prompt (group size G)."""
    learning_rate: float = Field(5e-6, ge=0)
    """Peak of the schedule that trl.lr_scheduler_type names."""
    loss_type: LossType = "dapo"
    """TRL's loss."""
    beta: float = Field(0.0, ge=0)
    """KL coefficient; 0 needs no reference model."""
    epsilon: float = Field(0.2, ge=0)
    """Clip range of the probability ratio."""
    epsilon_high: float | None = Field(None, ge=0)
    """Upper clip range; default: epsilon. For cispo choose about 5."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Over what the standard deviation is taken that advantages are divided by."""
    num_iterations: int = Field(1, ge=1)
    """Passes over each batch."""
    gradient_accumulation_steps: int = Field(1, ge=1)
    """Micro-batches per optimizer update."""
    max_completion_length: int = Field(1024, ge=1)
    """Longest completion trained on; what is beyond is cut off before the loss."""
    gradient_checkpointing: bool = True
    """Less memory, more computing."""
    importance_sampling_correction: bool | None = None
    """Correct for sampler and trainer disagreeing, as TRL does with vLLM. Default: on for the vllm
    engine and whenever sampling weights may be older than the trained ones."""
    use_lora: bool = False
    """Train an adapter in place of the model."""
    lora: LoraConfig = LoraConfig()
    trl: Options = Field(default_factory=dict)
    """Any other option of TRL's GRPOConfig, checked by GRPOConfig itself."""

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
