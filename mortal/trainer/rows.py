"""The trainers that learn from rows of a dataset, with TRL's names and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mortal.trainer.controls import ControlsOfRows
from mortal.trainer.face import RUNS_DIR, check_table, warn_of_idle
from mortal.trainer.from_trl import repository
from mortal.trainer.modes import Mode, usual_mode
from mortal.trainer.objects.models import check_reference
from mortal.trainer.rows_from_trl import key_of, with_options
from mortal.trainer.rows_settings import ARGUMENTS, GONE, decided_keys, face_of
from mortal.trainer.trl_names import refuse
from mortal_steps.config.trl_options import CONFIGS_OF_ROWS

if TYPE_CHECKING:  # whoever gives one of these has imported its library
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase
    from trl import DPOConfig, KTOConfig, RewardConfig, SFTConfig

    from mortal.trainer.objects.datasets import Rows


NOT_PARAMETERS = ("self", "args", "data_collator", "others", "__class__")


class RowsTrainer(ControlsOfRows):
    """What these trainers have in common."""

    algorithm: ClassVar[str]
    """A type of `[algorithm]` that has a configuration of TRL's."""
    formats: ClassVar[bool] = False
    """Whether TRL's trainer takes a `formatting_func`."""

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        args: SFTConfig | DPOConfig | KTOConfig | RewardConfig | None = None,
        data_collator: None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | Mapping[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        peft_config: LoraConfig | None = None,
        quantization_config: BitsAndBytesConfig | None = None,
        mode: Mode | None = None,
        backend: str = "local",
        run_id: str | None = None,
        runs_dir: str | Path = RUNS_DIR,
        config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Take what TRL's trainer of this name takes, and what a run has beside it.

        Args:
            model: Name of a model on the hub, a folder, or a transformers model with its tokenizer
                as `processing_class`.
            args: TRL's configuration, such as `SFTConfig` for `SFTTrainer`. All of its options
                count, TRL's defaults too. None: TRL's defaults.
            data_collator: None; a run has TRL's own.
            train_dataset: Rows in the form that TRL's trainer takes: a `datasets.Dataset`, a
                DataFrame, a list of dicts, anything else that gives dicts, or a dataset's name.
            eval_dataset: Held-out rows in the same forms, or several sets of them by name.
            processing_class: Tokenizer of a `model` that was given as an object.
            peft_config: Train a LoRA adapter with these settings.
            quantization_config: Load the model in 4 bits (QLoRA).
            mode: Which GPU the actor has on Modal. [SingleNode()]
            backend: Where the actor runs. `"local"`: in a process on this machine; `"modal"`,
                `"ray"`, or a place of your own as `module:Class`.
            run_id: Id of the run. None: a new one when training begins.
            runs_dir: Folder of all runs, if `args` names no `output_dir`.
            config: Any key of docs/configuration.md, such as `{"checkpoints.save_steps": 20}`.
            **others: Further arguments of TRL's trainer: `formatting_func` of SFTTrainer, and those
                that a run cannot have, such as `callbacks`, which are refused, with what there is
                instead.

        Raises `ConfigError`, `DataError` or `ModelError`, which name the parameter or key, its
        value and the remedy.
        """
        given = {name: value for name, value in locals().items() if name not in NOT_PARAMETERS}
        face, kind = face_of(self.algorithm), CONFIGS_OF_ROWS[self.algorithm]
        check_table(config, face.name)
        formatting_func = others.pop("formatting_func", None) if self.formats else None
        for name, value in {"data_collator": data_collator, **others}.items():
            refuse(
                *(name, value, given),
                origin=face.name,
                kinds=[kind],
                key_of=partial(key_of, kind=kind, algorithm=self.algorithm),
                gone=GONE,
                arguments=ARGUMENTS,
            )
        given["formatting_func"] = formatting_func
        given["mode"] = usual_mode(backend) if mode is None else mode
        given, idle = with_options(
            given, args, kind=kind, algorithm=self.algorithm, origin=face.name
        )
        self.mode = given["mode"]
        self._mode_is_given = False  # what the mode takes on Modal is nothing to tell of here
        # `super()` would stand in `locals()`.
        ControlsOfRows.__init__(self, given, decided_keys(given, self.algorithm), face)
        self._repo_id = repository(args)
        warn_of_idle(face.name, idle)


class TrainerWithReference(RowsTrainer):
    """What TRL gives a reference model."""

    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        ref_model: PreTrainedModel | None = None,
        args: DPOConfig | KTOConfig | None = None,
        data_collator: None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | Mapping[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        peft_config: LoraConfig | None = None,
        **others: Any,
    ) -> None:
        """Take what `RowsTrainer` does, and `ref_model`: None, or a model with the weights of
        `model`. The reference of a run is the model that it begins with."""
        check_reference(model, ref_model, has_adapter=peft_config is not None)
        super().__init__(
            *(model, args, data_collator, train_dataset, eval_dataset, processing_class),
            peft_config=peft_config,
            **others,
        )


class SFTTrainer(RowsTrainer):
    """Fine-tunes a model on texts, chats, or prompts with completions, as TRL's `SFTTrainer` does,
    in a run that survives being killed (docs/rows.md)."""

    algorithm = "sft"
    formats = True


class DPOTrainer(TrainerWithReference):
    """Trains a model to prefer the better of two answers, as TRL's `DPOTrainer` does, in a run that
    survives being killed (docs/rows.md)."""

    algorithm = "dpo"


class KTOTrainer(TrainerWithReference):
    """Trains a model on answers that are good or bad, as TRL's `KTOTrainer` does, in a run that
    survives being killed (docs/rows.md)."""

    algorithm = "kto"


class RewardTrainer(RowsTrainer):
    """Trains a model that scores texts on pairs of which one is better, as TRL's `RewardTrainer`
    does, in a run that survives being killed (docs/rows.md)."""

    algorithm = "reward"
