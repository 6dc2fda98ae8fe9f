"""Supervised steps before reinforcement begins, with TRL's SFTTrainer.

The model learns `prompt -> completion_column + EOS`, with loss on the completion alone; sparse
rewards need a policy that succeeds now and then. A completion may be a dialogue, a list of
messages; then the loss is on those of the assistant.
"""

import difflib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars, enable_progress_bars, is_progress_bar_enabled
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PrinterCallback
from trl import SFTConfig, SFTTrainer

from mortal_steps.config import WarmStartConfig
from mortal_steps.errors import DataError, ModelError
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.stepping.reproducible import reproducible_kernels
from mortal_steps.policy.gpu import on_one_gpu
from mortal_steps.policy.model_files.tokenizer import save_tokenizer
from mortal_steps.policy.model_files.writing import any_generation_settings
from mortal_steps.types import Problem


def warm_start(
    model_folder: str | Path,
    out_folder: Path,
    problems: Sequence[Problem],
    config: WarmStartConfig,
    seed: int,
    *,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> None:
    """Write the model of `model_folder` (or of that hub name), warm-started, to `out_folder`.

    The same bits for the same model, problems, config and seed. Seeds the process's random
    streams, as every Trainer does. Raises `DataError` for a completion column that is missing or
    holds no text, `ModelError` for a model that cannot be loaded.
    """
    examples = _prompt_completion_pairs(problems, config.completion_column)
    tokenizer = _load_tokenizer(model_folder, trust_remote_code)
    if not isinstance(problems[0].prompt, str) and tokenizer.chat_template is None:
        raise ModelError(
            f"{model_folder} has no chat template, and the prompts are chat messages; use text "
            "prompts or a model with a template"
        )
    with tempfile.TemporaryDirectory() as scratch:
        args = _arguments(scratch, config, seed, dtype, trust_remote_code)
        # The tools' answers in a dialogue are not the model's to imitate.
        args.assistant_only_loss = any(
            _is_dialogue(row["completion"]) and len(row["completion"]) > 1 for row in examples
        )
        trainer = _make_trainer(str(model_folder), args, examples, tokenizer)
        with reproducible_kernels():
            trainer.train()
    with any_generation_settings(trainer.model, out_folder):
        trainer.model.save_pretrained(out_folder)
    save_tokenizer(tokenizer, out_folder)


def _arguments(
    scratch: str, config: WarmStartConfig, seed: int, dtype: str, trust_remote_code: bool
) -> SFTConfig:
    """Return the Trainer's arguments; it writes nothing but temporary files, to `scratch`."""
    args = SFTConfig(
        output_dir=scratch,
        seed=seed,
        max_steps=config.steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",  # more steps go on where fewer would end
        per_device_train_batch_size=config.batch_size,
        completion_only_loss=True,
        max_length=None,
        model_init_kwargs={
            "dtype": dtype,
            "trust_remote_code": trust_remote_code,
            **on_one_gpu(),
        },
        bf16=False,
        gradient_checkpointing=False,
        use_cache=True,  # it goes into the saved config, where sampling needs it
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    private.use_one_device(args)
    return args


def _prompt_completion_pairs(problems: Sequence[Problem], column: str) -> list[dict[str, Any]]:
    if not problems:
        raise DataError("model.warm_start needs training rows, and data.source leaves none")
    return [{"prompt": row.prompt, "completion": _completion(row, column)} for row in problems]


def _completion(problem: Problem, column: str) -> Any:
    if column not in problem.columns:
        near = difflib.get_close_matches(column, problem.columns, n=1)
        raise DataError(
            f"model.warm_start.completion_column = {column!r}: row {problem.id} has no such column"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + f" Columns: {', '.join(problem.columns) or 'none beside the prompt'}"
        )
    found = problem.columns[column]
    if _is_dialogue(found) and not isinstance(problem.prompt, str):
        return found
    if not isinstance(found, str) or not found:
        raise DataError(
            f"model.warm_start.completion_column = {column!r}: row {problem.id} holds {found!r}, "
            "not a text to imitate"
        )
    return found if isinstance(problem.prompt, str) else [{"role": "assistant", "content": found}]


def _is_dialogue(found: Any) -> bool:
    return (
        isinstance(found, Sequence)
        and not isinstance(found, str)
        and len(found) > 0
        and all(isinstance(message, Mapping) and "role" in message for message in found)
    )


def _load_tokenizer(model: str | Path, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model.name_or_path = {str(model)!r}: no tokenizer can be loaded from it: {error}"
        ) from error
    if tokenizer.eos_token is None:
        raise ModelError(f"{model}: its tokenizer has no EOS token, which must end a completion")
    return tokenizer


def _make_trainer(
    model: str,
    args: SFTConfig,
    examples: list[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
) -> SFTTrainer:
    shows_progress = is_progress_bar_enabled()
    disable_progress_bars()
    try:
        trainer = SFTTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(examples),
            processing_class=tokenizer,
        )
    except OSError as error:
        raise ModelError(
            f"model.name_or_path = {model!r}: no model can be loaded from it: {error}"
        ) from error
    finally:
        if shows_progress:
            enable_progress_bars()
    # It prints the summary of the run to stdout, which belongs to the caller.
    trainer.remove_callback(PrinterCallback)
    return trainer
