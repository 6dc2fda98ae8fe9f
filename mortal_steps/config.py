"""The configuration of a run: pydantic, frozen, unknown keys refused. Imports no torch.

Sections follow the tables of a config TOML. `mortal_steps.config_loader` reads files and turns
pydantic's complaints into `ConfigError`s; `mortal_steps.preflight` checks what needs the disk.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
WeightSyncMethod = Literal["reload", "volume", "direct", "checkpoint"]

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


class Section(BaseModel):
    """A table of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NewModelConfig(Section):
    """`[model.new]`: build a small Qwen3-shaped model with a character tokenizer from a seed."""

    alphabet: str = "abcdefghijklmnopqrstuvwxyz =>:?().,ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-\n"
    """Characters the tokenizer knows; anything else becomes the unknown token."""
    hidden_size: int = Field(64, ge=8)
    num_layers: int = Field(2, ge=1)
    head_dim: int = Field(32, ge=8)
    """32 or more for vLLM, which has no kernel for smaller heads on CPU."""
    intermediate_size: int = Field(128, ge=8)
    max_position_embeddings: int = Field(512, ge=8)
    """Context length in tokens."""


class WarmStartConfig(Section):
    """`[model.warm_start]`: supervised steps (TRL's SFTTrainer) before reinforcement begins."""

    steps: int = Field(50, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    batch_size: int = Field(64, ge=1)
    """Examples per optimizer step."""
    completion_column: str = "answer"
    """Dataset column with the text to imitate."""


class ModelConfig(Section):
    """`[model]`: which model is trained."""

    name_or_path: str = "Qwen/Qwen2.5-0.5B-Instruct"
    """A hub name or a local folder; not used with `[model.new]`."""
    max_model_len: int = Field(16384, ge=2)
    """Longest prompt plus completion, in tokens."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Of the weights, in training and sampling."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    new: NewModelConfig | None = None
    warm_start: WarmStartConfig | None = None


class DataConfig(Section):
    """`[data]`: where problems come from."""

    source: str = ""
    """A hub dataset, a local folder, a .jsonl/.json/.parquet/.csv file, or
    `reasoning_gym:TASK`."""
    config: str | None = None
    """Configuration name of a hub dataset."""
    split: str = "train"
    """Split of a hub dataset or of a folder."""
    prompt_column: str = "prompt"
    """Text, or chat messages; every other column goes to the reward functions."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first N rows of the source."""
    shuffle: bool = True
    """Draw a new order every epoch, from the run's seed."""
    eval_source: str | None = None
    """Held-out problems from another source, same forms as `source`."""
    eval_split: str | None = None
    """Held-out problems from another split of `source` (or of `eval_source`)."""
    eval_samples: int = Field(0, ge=0)
    """With an evaluation source or split: use its first N rows (0: all). Without: hold N rows of
    `source` out of training."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the reasoning_gym task, `size` included."""


class RolloutConfig(Section):
    """`[rollout]`: how completions are sampled."""

    engine: Literal["transformers", "vllm"] = "vllm"
    """What samples."""
    num_rollout_workers: int = Field(2, ge=1)
    """Worker processes that sample; their number does not change a run's numbers."""
    num_shards: int | None = Field(None, ge=1)
    """Parts a batch is dealt out in; default 4, or `training.batch_size` where that is less. A
    shard is sampled in one piece, so this number belongs to the run's numbers and the number of
    workers does not."""
    max_tokens: int = Field(8000, ge=1)
    """Most tokens per generated completion."""
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
    weight_sync_method: WeightSyncMethod = "reload"
    """How vLLM takes new weights: sleep, wake and reload; reload from the store; in memory; or a
    new engine."""
    sync_weights_every: int = Field(1, ge=1)
    """Publish new weights to the rollout workers every N steps."""
    staleness: int = Field(0, ge=0)
    """Steps that generation may run ahead of training."""
    canary_tolerance: float = Field(1e-3, gt=0)
    """Largest difference (nats) between a worker's and the actor's logprobs of the probe."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of the engine (vLLM: of `LLM(...)`)."""


class RewardsConfig(Section):
    """`[rewards]`: callables exactly as TRL's."""

    functions: tuple[str, ...] = ()
    """`module:function` or `path/file.py:function`."""
    weights: tuple[float, ...] | None = None
    """One per function; default 1 each."""
    rehearse: bool = True
    """Call each function once on a made-up completion before anything is started."""


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
    trl: dict[str, Any] = Field(default_factory=dict)
    """Any other option of TRL's GRPOConfig, checked by GRPOConfig itself."""

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


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: int = Field(0, ge=0)
    """Evaluate every N steps and at the end; 0 never."""
    on_start: bool = True
    """Also evaluate before the first step."""
    temperature: float = Field(0.0, ge=0)
    """0 is greedy decoding."""


class CheckpointsConfig(Section):
    """`[checkpoints]`: when the actor's whole state is saved."""

    save_steps: int = Field(100, ge=1)
    """Save every N steps and at the end."""
    keep_last: int = Field(2, ge=1)
    keep_best: bool = True
    """Also keep the checkpoint with the best evaluation (or training) reward."""


class RoleConfig(Section):
    """How the local processes of one role are started."""

    python: str | None = None
    """Interpreter; default: the one that runs the flow. MORTAL must be installed in it."""
    threads: int = Field(1, ge=1)
    """OMP_NUM_THREADS of the process."""
    devices: tuple[str, ...] = ()
    """CUDA_VISIBLE_DEVICES, dealt out to the role's processes in turn; empty: unchanged."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables."""


class LocalConfig(Section):
    """`[compute.local]`: worker processes on this machine."""

    actor: RoleConfig = RoleConfig()
    rollout: RoleConfig = RoleConfig()
    reward: RoleConfig = RoleConfig()


class ModalConfig(Section):
    """`[compute.modal]`: GPUs per role (`A100`, or `A100:2` for two) and single-node options."""

    actor: str = "A100"
    rollout: str = "A10G"
    gpu: str = "A100"
    """GPU of the one container in single-node mode."""
    use_vllm: bool = False
    vllm_mode: Literal["colocate", "serve"] = "colocate"


class ComputeConfig(Section):
    """`[compute]`: where workers run."""

    backend: Literal["local", "modal"] = "local"
    mode: Literal["distributed", "single_node"] = "distributed"
    """`distributed`: actor and rollout workers apart. `single_node`: TRL's own loop in one."""
    local: LocalConfig = LocalConfig()
    modal: ModalConfig = ModalConfig()


class LoggingConfig(Section):
    """`[logging]`: what is reported where."""

    artifact_steps: int = Field(50, ge=1)
    """Refresh the timing table and the progress in the Prefect UI every N steps."""
    use_wandb: bool = False
    wandb_project: str = "modal-grpo-trl"


class RunConfig(Section):
    """One run, whole. Every section has defaults; a usable run names data and rewards."""

    name: str = Field("grpo", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Start of generated run ids."""
    seed: int = Field(42, ge=0, lt=2**31)
    """Of data order, sampling, training and new models."""
    run_id: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Identity of the run; the same id goes on with the same run."""
    runs_dir: str = "runs"
    """Folder of all runs."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: RewardsConfig = RewardsConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    compute: ComputeConfig = ComputeConfig()
    logging: LoggingConfig = LoggingConfig()

    @property
    def num_shards(self) -> int:
        """Parts a batch is dealt out in."""
        return self.rollout.num_shards or min(4, self.training.batch_size)

    @property
    def corrects_importance(self) -> bool:
        """Whether TRL's importance-sampling correction is on."""
        chosen = self.training.importance_sampling_correction
        stale = self.rollout.sync_weights_every > 1 or self.rollout.staleness > 0
        return chosen if chosen is not None else stale or self.rollout.engine == "vllm"

    def identity(self) -> dict[str, Any]:
        """What decides the run's numbers: everything but places, workers and reporting."""
        data = self.model_dump(mode="json", exclude={"run_id", "runs_dir", "compute", "logging"})
        del data["rollout"]["num_rollout_workers"], data["checkpoints"]
        data["rollout"]["num_shards"] = self.num_shards
        return data

    def fingerprint(self) -> str:
        """Digest of `identity()`, hexadecimal sha256."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()
