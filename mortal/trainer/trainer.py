"""`MortalTrainer`: runs from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mortal.trainer import from_trl
from mortal.trainer.controls import RunControls
from mortal.trainer.face import RUNS_DIR, check_table, warn_of_idle
from mortal.trainer.modes import Mode
from mortal.trainer.objects.environments import Factory, Tool
from mortal.trainer.objects.rewards import Reward
from mortal.trainer.settings import FACE, ScaleRewards, checked_mode, decided_keys
from mortal_steps.config.training import LossType

if TYPE_CHECKING:  # whoever gives one of these has imported its library
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOConfig, RLOOConfig

    from mortal.trainer.objects.datasets import Rows


class MortalTrainer(RunControls):
    """Trains a model with GRPO or RLOO, in a run that survives being killed.

    The flow is that of `mortal train`. A parameter that is None leaves its key at the default of
    docs/configuration.md, which is given in brackets.

    Args:
        model: Name of a model on the hub, a folder, or a transformers model with its tokenizer as
            `processing_class`.
        reward_funcs: One reward or several: functions as TRL takes them, instances of
            `RewardEnvironment`, kinds of reward such as `Exact()`, or names such as
            `"rewards.py:correct"`. None and `"sandbox"` run completions as programs against the
            dataset's test cases; with an environment, None means its own `get_reward`.
        args: TRL's `GRPOConfig` or `RLOOConfig`. All of its options count, TRL's defaults too, and
            take the place of the parameters below that say the same.
        train_dataset: Name of a dataset, or rows with a column `prompt`: a `datasets.Dataset`, a
            DataFrame, a list of dicts, or anything else that gives dicts. None: 128 programming
            problems with test cases.
        eval_dataset: Held-out problems in the same forms, or several sets of them by name.
        processing_class: Tokenizer of a `model` that was given as an object.
        reward_processing_classes: Tokenizer of a reward model, or a list with one for each reward.
        tools: Functions that the model may call, as TRL takes them: with annotated parameters and a
            docstring, sync or async.
        environment_factory: Class of environments whose methods are tools, as TRL takes it, or a
            function that returns an instance; or several by name, of which a row's column
            `environment` names one. With one that defines `get_reward`, `reward_funcs` may be left
            out; if it gives the prompts, `train_dataset` or its column `prompt` may.
        mode: Where the workers run: `SingleNode(...)` or `Distributed(...)`. [Distributed()]
        reward_weights: One number for each reward. [1.0 each]
        peft_config: Train a LoRA adapter with these settings.
        quantization_config: Load the model in 4 bits (QLoRA).
        num_generations: Completions sampled for each prompt. [4]
        batch_size: Prompts in a train step. [8]
        learning_rate: Of the optimizer. [5e-6]
        max_steps: Train steps of the whole run, each of one batch; -1: as many as `num_epochs`
            takes. [-1]
        num_epochs: How often the dataset is trained on. [5]
        loss_type: TRL's name of the loss. ["dapo"]
        beta: Weight of the KL divergence from the model that training begins with; 0 loads no
            reference model. [0.0]
        epsilon: Clip range of the probability ratio. [0.2]
        scale_rewards: Divide advantages by the standard deviation of a group's or a batch's
            rewards; "none" or False: do not divide. ["group"]
        max_completion_length: Longest completion that is trained on, in tokens. [1024]
        max_tokens: Longest completion that is sampled, in tokens, where it differs from
            `max_completion_length`.
        max_model_len: Longest prompt and completion together, in tokens. [16384]
        use_lora: Train a LoRA adapter with the settings of `training.lora`. [False]
        gradient_checkpointing: Compute activations again in the backward pass, which takes less
            memory and more time. [True]
        algorithm: `"grpo"`, `"rloo"`, or an algorithm of your own as `module:Class`. ["grpo"]
        backend: `"local"`: workers are processes on this machine. `"modal"`: containers on Modal.
            `"ray"`: on the nodes of a Ray cluster; or a place of your own as `module:Class`.
        run_id: Id of the run. None: a new one when training begins.
        runs_dir: Folder of all runs. Objects given as parameters are saved below it.
        report_to: Trackers, such as `"wandb"`. [none]
        config: Every other key of docs/configuration.md, such as `{"rollout.staleness": 1}`.
        **others: Further arguments of TRL's trainers, such as `callbacks`. What a run cannot have
            is refused, with what there is instead.

    Objects are part of the run's identity: a run cannot be continued with different ones.

    Raises `ConfigError`, `RewardError`, `DataError` or `ModelError`, which name the parameter or
    key, its value and the remedy.
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel = "Qwen/Qwen2.5-0.5B-Instruct",
        reward_funcs: Reward | Sequence[Reward] | None = None,
        args: GRPOConfig | RLOOConfig | None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | Mapping[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_processing_classes: PreTrainedTokenizerBase
        | list[PreTrainedTokenizerBase | None]
        | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        environment_factory: Factory | Mapping[str, Factory] | None = None,
        mode: Mode | None = None,
        reward_weights: Sequence[float] | None = None,
        peft_config: LoraConfig | None = None,
        quantization_config: BitsAndBytesConfig | None = None,
        num_generations: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_steps: int | None = None,
        num_epochs: float | None = None,
        loss_type: LossType | None = None,
        beta: float | None = None,
        epsilon: float | None = None,
        scale_rewards: ScaleRewards | None = None,
        max_completion_length: int | None = None,
        max_tokens: int | None = None,
        max_model_len: int | None = None,
        use_lora: bool | None = None,
        gradient_checkpointing: bool | None = None,
        algorithm: Literal["grpo", "rloo"] | str | None = None,
        backend: Literal["local", "modal", "ray"] | str = "local",
        run_id: str | None = None,
        runs_dir: str | Path = RUNS_DIR,
        report_to: str | Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        parameters = {name: value for name, value in locals().items() if name != "self"}
        check_table(config, FACE.name)
        given, idle = from_trl.translated(parameters)
        self.mode = checked_mode(given["mode"])
        self._mode_is_given = mode is not None
        # `super()` would stand in `locals()`.
        RunControls.__init__(self, given, decided_keys(given), FACE)
        self._repo_id = from_trl.repository(args)
        warn_of_idle(FACE.name, idle)
