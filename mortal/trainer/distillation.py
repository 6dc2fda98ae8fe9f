"""`DistillationTrainer`: a student learns from a teacher, with TRL's names and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal.trainer.controls import RunControls
from mortal.trainer.distillation_from_trl import (
    ALGORITHM,
    ARGUMENTS,
    FACE,
    GONE,
    KIND,
    decided_keys,
    read_options,
)
from mortal.trainer.face import RUNS_DIR, check_table, warn_of_idle
from mortal.trainer.from_trl import repository
from mortal.trainer.modes import Mode
from mortal.trainer.rows_from_trl import key_of, with_options
from mortal.trainer.trl_names import refuse

if TYPE_CHECKING:  # whoever gives one of these has imported its library
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase
    from trl import DistillationConfig

    from mortal.trainer.objects.datasets import Rows

NOT_PARAMETERS = ("self", "args", "others", "__class__")


class DistillationTrainer(RunControls):
    """Trains a student on its own completions to say what a teacher would, as TRL's
    `DistillationTrainer` does, in a run that survives being killed.

    Args:
        model: The student: name of a model on the hub, a folder, or a transformers model with its
            tokenizer as `processing_class`.
        teacher_model: The model that is learned from, in the same forms. Its vocabulary is the
            student's.
        args: TRL's `DistillationConfig`. All of its options count, TRL's defaults too. None: TRL's
            defaults.
        train_dataset: Rows with a column `prompt`: a `datasets.Dataset`, a DataFrame, a list of
            dicts, anything else that gives dicts, or a dataset's name.
        eval_dataset: Held-out problems in the same forms, or several sets of them by name; the
            reward functions of `config["evaluation.functions"]` score them.
        processing_class: Tokenizer of a `model` that was given as an object.
        peft_config: Train a LoRA adapter with these settings.
        quantization_config: Load the student in 4 bits (QLoRA).
        mode: Where the workers run: `SingleNode(...)` or `Distributed(...)`. [as `use_vllm` and
            `vllm_mode` say]
        backend: `"local"`, `"modal"`, `"ray"`, or a place of your own as `module:Class`.
        run_id: Id of the run. None: a new one when training begins.
        runs_dir: Folder of all runs, if `args` names no `output_dir`.
        config: Any key of docs/configuration.md, such as `{"rollout.staleness": 1}`.
        **others: Further arguments of TRL's trainer, such as `callbacks`. What a run cannot have is
            refused, with what there is instead.

    Raises `ConfigError`, `DataError` or `ModelError`, which name the parameter or key, its value
    and the remedy.
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        teacher_model: str | Path | PreTrainedModel | None = None,
        args: DistillationConfig | None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | Mapping[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        quantization_config: BitsAndBytesConfig | None = None,
        peft_config: LoraConfig | None = None,
        mode: Mode | None = None,
        backend: str = "local",
        run_id: str | None = None,
        runs_dir: str | Path = RUNS_DIR,
        config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in NOT_PARAMETERS}
        check_table(config, FACE.name)
        for name, value in others.items():
            refuse(
                *(name, value, given),
                origin=FACE.name,
                kinds=[KIND],
                key_of=partial(key_of, kind=KIND, algorithm=ALGORITHM),
                gone=GONE,
                arguments=ARGUMENTS,
            )
        given, idle = with_options(
            given, args, kind=KIND, algorithm=ALGORITHM, origin=FACE.name, read=read_options
        )
        self.mode = given["mode"]
        self._mode_is_given = mode is not None
        # `super()` would stand in `locals()`.
        RunControls.__init__(self, given, decided_keys(given), FACE)
        self._repo_id = repository(args)
        warn_of_idle(FACE.name, idle)
