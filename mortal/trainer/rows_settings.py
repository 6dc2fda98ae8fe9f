"""What the parameters of the trainers that learn from rows are in a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mortal.trainer.face import EXCLUDE, Face, checked_runs_dir, trainer_of_rows
from mortal.trainer.modes import Mode
from mortal.trainer.objects.datasets import Change, eval_keys, source_of
from mortal.trainer.objects.models import (
    lora_settings,
    model_settings,
    other_padding,
    quantization_settings,
)
from mortal_steps.config.trl_options import config_of, options_of
from mortal_steps.errors import ConfigError, DataError, ModelError
from mortal_steps.models.model_class import CLASSIFIER
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.policy.algorithms.trl_hooks import SCORES

KEYS: Mapping[str, str] = {"backend": "compute.backend", "run_id": "run_id"}
ALSO_KEYS: Mapping[str, str] = {
    "model": "model.name_or_path",
    "train_dataset": "data.source",
    "eval_dataset": "data.eval_source",
    "runs_dir": "runs_dir",
}
NO_SAMPLING = (None, 1, "transformers")
"""Values of keys of `[rollout]` that a mode has where it says nothing of sampling."""
AUTO = {SCORES: "AutoModelForSequenceClassification"}
USUAL_ATTENTION = "sdpa"
"""What transformers loads a model with."""
QUANTIZED = ("is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit")
TRL = "training.trl"
ARGUMENTS: Mapping[str, str] = {
    "data_collator": "a run has TRL's own, which puts the prepared rows of a micro-batch together; "
    "change the rows themselves, or leave it out",
    "compute_metrics": "evaluations have TRL's loss and metrics (result.evaluations); leave it "
    "out, and compute others from the trained model (save_model)",
    "preprocess_logits_for_metrics": "there is no compute_metrics that it is for; leave it out",
    "compute_loss_func": "the loss is TRL's, by args.loss_type where it has several; leave it out",
    "optimizer_cls_and_kwargs": "use optim and optim_args in args",
    "optimizers": "use optim, optim_args and lr_scheduler_type in args",
    "callbacks": "the actor takes none; a tracker follows a run from outside (report_to in args)",
}
"""Arguments of TRL's trainers that a run cannot have, and what there is instead."""
GONE: Mapping[str, str] = {
    "tokenizer": "it is called processing_class",
    "max_seq_length": "it is called max_length, and stands in args",
    "max_prompt_length": "TRL has no such option any more; max_length in args is for both",
    "reward_funcs": "nothing is sampled or scored; mortal.MortalTrainer takes rewards",
}
"""Names that are not TRL's, or not any more, and what there is instead."""


def face_of(algorithm: str) -> Face:
    name = trainer_of_rows(algorithm)
    return Face(name=name, keys=KEYS, also=ALSO_KEYS, algorithms=[algorithm])


def decided_keys(given: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Return the keys that follow from the class, the mode, and parameters that may be objects;
    `config` has dotted keys alone. Raises `ConfigError`, and the errors of the modules in
    `objects`."""
    name, kind = trainer_of_rows(algorithm), ALGORITHMS.load(algorithm)
    runs_dir = checked_runs_dir(given["runs_dir"], name)
    adapter, change = given["peft_config"], formatting(given, name)
    keys: dict[str, Any] = {"algorithm.type": algorithm, "runs_dir": runs_dir}
    keys |= _mode_keys(given["mode"], name)
    keys |= _model_keys(given, algorithm, kind.task, runs_dir)
    if adapter is not None:
        keys |= lora_settings(adapter)
        check_task(adapter, kind.task, name)
    if given["quantization_config"] is not None:
        keys |= quantization_settings(given["quantization_config"])
    if given["train_dataset"] is None:
        raise ConfigError(
            f"{name}: train_dataset is None; give the rows to learn from, or a dataset's name"
        )
    for parameter in ("train_dataset", "eval_dataset"):
        _refuse_streams(given[parameter], parameter)
    needs = _rows_needed(given["config"])
    keys["data.source"] = source_of(
        given["train_dataset"], runs_dir, "train_dataset", needs, change
    )
    if given["eval_dataset"] is not None:
        keys |= eval_keys(given["eval_dataset"], runs_dir, change)
        keys[EXCLUDE] = False  # as TRL's trainer, which trains on all of train_dataset
    return keys


def _mode_keys(mode: Any, name: str) -> dict[str, Any]:
    """Return the keys of where the actor is. Raises `ConfigError` for a mode that samples."""
    if not isinstance(mode, Mode):
        raise ConfigError(f"{name}: mode = {mode!r}: write SingleNode(...) or Distributed(...)")
    settings = mode.settings()
    for key in [key for key in settings if key.startswith("rollout.")]:
        if (value := settings.pop(key)) not in NO_SAMPLING:
            raise ConfigError(
                f"{name}(mode={mode!r}): {key} = {value!r} is about sampling, and nothing is "
                "sampled where rows are learned; leave it out of the mode"
            )
    return settings


def _model_keys(
    given: Mapping[str, Any], algorithm: str, task: str, runs_dir: str
) -> dict[str, Any]:
    """Return the keys of the model and its tokenizer, and of what a saved model does not say.
    Raises `ModelError`."""
    model, tokenizer = given["model"], given["processing_class"]
    is_object = not isinstance(model, str | Path)
    if is_object:
        _check_kind(model, task, trainer_of_rows(algorithm))
        if given["quantization_config"] is not None:
            raise ModelError(
                "quantization_config beside a model object, which is loaded already; give the "
                "model's name"
            )
    keys = model_settings(
        model,
        tokenizer,
        runs_dir,
        has_adapter=given["peft_config"] is not None,
        auto_class=AUTO.get(task, "AutoModelForCausalLM"),
    )
    attention = private.attention_of(model) if is_object else None
    if attention not in (None, USUAL_ATTENTION):
        keys[f"{TRL}.model_init_kwargs"] = {"attn_implementation": attention}
    pads = f"{TRL}.pad_token"
    takes = "pad_token" in options_of(str(config_of(algorithm)))
    if takes and tokenizer is not None and not is_object and pads not in given["config"]:
        padding = other_padding(tokenizer, str(model))
        keys |= {pads: padding} if padding else {}
    return keys


def _check_kind(model: Any, task: str, name: str) -> None:
    """Raise `ModelError` for an object that the trainer does not train, or that cannot be saved and
    loaded as it is."""
    kind = type(model).__name__
    labels = getattr(getattr(model, "config", None), "num_labels", 1)
    if task == SCORES and labels != 1:
        raise ModelError(
            f"model is a {kind} with num_labels = {labels}, and {name} trains one that "
            "gives a text one score; give its name, or "
            "AutoModelForSequenceClassification.from_pretrained(..., num_labels=1)"
        )
    if task != SCORES and kind.endswith(CLASSIFIER):
        raise ModelError(
            f"model is a {kind}, which writes no text; give {name} a model such as "
            "AutoModelForCausalLM.from_pretrained(...)"
        )
    if any(getattr(model, is_so, False) for is_so in QUANTIZED):
        raise ModelError(
            "model is quantized; give its name, with quantization_config=BitsAndBytesConfig(...) "
            "and peft_config=LoraConfig(...)"
        )


def formatting(given: Mapping[str, Any], name: str) -> Change | None:
    """Return what becomes of each row where TRL's `formatting_func` is given: a column `text` more,
    as TRL adds it. Raises `ConfigError` or `DataError` where TRL does."""
    function: Callable[[dict[str, Any]], Any] | None = given["formatting_func"]
    if function is None:
        return None
    only = given["config"].get(f"{TRL}.completion_only_loss")

    def with_text(row: Mapping[str, Any]) -> Mapping[str, Any]:
        if "input_ids" in row:
            raise DataError(
                f"{name}(formatting_func=...): the rows hold tokens (input_ids), which are taken "
                "as they are; leave it out"
            )
        if only or (only is None and {"prompt", "completion"} <= row.keys()):
            raise ConfigError(
                f"{name}(formatting_func=...): the completions alone are learned "
                "(completion_only_loss), and a formatted row has none; leave it out, or write "
                "completion_only_loss=False into args"
            )
        text = function(dict(row))
        if not isinstance(text, str):
            raise DataError(
                f"{name}(formatting_func=...): it returned a {type(text).__name__}, and has to "
                "return the text of one row, a str"
            )
        return {**row, "text": text}

    return with_text


def check_task(adapter: Any, task: str, name: str) -> None:
    """Raise `ConfigError` for an adapter that is meant for another kind of model: with it, TRL
    would leave a head that scores as it was drawn."""
    given = getattr(adapter.task_type, "value", adapter.task_type)
    if given != task and (given is not None or task == SCORES):
        raise ConfigError(
            f"{name}(peft_config=LoraConfig(task_type={given!r})): write task_type={task!r}, which "
            "is what it trains"
        )


def _refuse_streams(dataset: Any, parameter: str) -> None:
    """Raise `DataError` for a dataset without a length, of which TRL has its own order."""
    for each in dataset.values() if isinstance(dataset, Mapping) else [dataset]:
        if any(kind.__name__ == "IterableDataset" for kind in type(each).__mro__):
            raise DataError(
                f"{parameter} is an IterableDataset, which TRL reads in its own order while it "
                "trains, and a run prepares all rows before; give "
                f"datasets.Dataset.from_list(list({parameter})), or {parameter}.take(N) in it"
            )


def _rows_needed(config: Mapping[str, Any]) -> int | None:
    """Return how many rows a run takes, as far as that is known."""
    steps, size = config.get("training.max_steps"), config.get("training.batch_size")
    if not isinstance(steps, int) or not isinstance(size, int) or steps < 1:
        return None
    return None if config.get(f"{TRL}.packing") else steps * size
