"""Supervised steps before reinforcement begins, as `algorithm.type = "sft"` takes them.

The model learns `prompt -> completion_column + EOS`, with loss on the completion alone; sparse
rewards need a policy that succeeds now and then. A completion may be a dialogue, a list of
messages; then the loss is on those of the assistant.
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig, WarmStartConfig
from mortal_steps.errors import DataError, ModelError
from mortal_steps.extensions import nearest
from mortal_steps.policy.algorithms.rows.stepper import RowsStepper
from mortal_steps.policy.algorithms.sft import SFT
from mortal_steps.policy.algorithms.stepping.reproducible import reproducible_kernels
from mortal_steps.policy.batches.prepared_rows import RowIndices
from mortal_steps.policy.model_files.tokenizer import load_tokenizer
from mortal_steps.policy.plan import TrainerPlan
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
    rows = _rows(problems, config.completion_column)
    tokenizer = load_tokenizer(str(model_folder), trust_remote_code)
    if not isinstance(problems[0].prompt, str) and tokenizer.chat_template is None:
        raise ModelError(
            f"{model_folder} has no chat template, and the prompts are chat messages; use text "
            "prompts or a model with a template"
        )
    loaded = {"name_or_path": str(model_folder), "trust_remote_code": trust_remote_code}
    plan = TrainerPlan(
        seed=seed,
        algorithm=SFT(),
        model=ModelConfig.model_validate({**loaded, "dtype": dtype}),
        training=_training(config, rows),
        rollout=RolloutConfig(),
        reward_weights={},
        here=True,
    )
    with tempfile.TemporaryDirectory() as name, reproducible_kernels():
        scratch = Path(name)
        SFT().prepare(plan, rows, [], folder=scratch / "rows")
        stepper = RowsStepper(
            SFT(),
            plan,
            model_path=str(model_folder),
            num_steps=config.steps,
            output_dir=scratch,
            autocast=False,
            prepared=scratch / "rows",
        )
        stepper.begin()
        _train(stepper, config.steps)
        stepper.save_final(out_folder)


def _training(config: WarmStartConfig, rows: Sequence[Problem]) -> TrainingConfig:
    completions = [row.columns["completion"] for row in rows]
    # The tools' answers in a dialogue are not the model's to imitate.
    dialogues = any(_is_dialogue(each) and len(each) > 1 for each in completions)
    return TrainingConfig(
        batch_size=config.batch_size,
        gradient_accumulation_steps=1,
        max_steps=config.steps,
        learning_rate=config.learning_rate,
        gradient_checkpointing=False,
        trl={
            "lr_scheduler_type": "constant",  # more steps go on where fewer would end
            "completion_only_loss": True,
            "assistant_only_loss": dialogues,
            "max_length": "none",
        },
    )


def _train(stepper: RowsStepper, num_steps: int) -> None:
    for step in range(num_steps):
        if stepper.epochs.begins(step):
            order = stepper.draw_order(stepper.epochs.epoch(step))
        first = stepper.epochs.first_micro_batch(step)
        stepper.train_step(RowIndices(step=step, order=order, first=first, stop=first + 1), seed=0)


def _rows(problems: Sequence[Problem], column: str) -> list[Problem]:
    """Return the rows as TRL takes them: a prompt and a column `completion`."""
    if not problems:
        raise DataError("model.warm_start needs training rows, and data.source leaves none")
    return [
        dataclasses.replace(row, columns={"completion": _completion(row, column)})
        for row in problems
    ]


def _completion(problem: Problem, column: str) -> Any:
    if column not in problem.columns:
        near = nearest(column, problem.columns, cutoff=0.6)
        raise DataError(
            f"model.warm_start.completion_column = {column!r}: row {problem.id} has no such column"
            + (f"; did you mean {near!r}?" if near else "")
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
