"""Translates TRL's sizes, in completions, and its steps, in optimizer updates.

A batch here has `training.batch_size` prompts, and a step of a run is one batch:

    per_device_train_batch_size = 2, steps_per_generation = 8, num_generations = 4
        16 completions a batch, so 4 prompts
    gradient_accumulation_steps = 2
        8 / 2 = 4 optimizer updates a batch, so max_steps = 12 are 3 steps here
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mortal_steps.config import TrainingConfig
from mortal_steps.errors import ConfigError

SIZES = (
    *("per_device_train_batch_size", "generation_batch_size", "steps_per_generation"),
    "gradient_accumulation_steps",
)
IN_BATCHES: Mapping[str, str] = {
    "save_steps": "checkpoints.save_steps",
    "eval_steps": "evaluation.eval_steps",
}
STEPS = ("max_steps", "save_strategy", "eval_strategy", *IN_BATCHES)


def sizes_of(
    values: Mapping[str, Any], keys: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the size of a batch in prompts, from sizes in completions. `keys` has what options of
    the same meaning have become.

    Raises `ConfigError` for a batch that is no whole number of prompts, or has a size already.
    """
    of_training = TrainingConfig.model_fields
    micro, pieces = values.get("per_device_train_batch_size"), values.get("steps_per_generation")
    accumulated = keys.get("training.gradient_accumulation_steps", 1)
    rows = values.get("generation_batch_size")
    if rows is None and micro is not None:
        rows = micro * (pieces or accumulated)
    if rows is not None and micro is not None:
        of = f"per_device_train_batch_size = {micro}"
        pieces = _exactly(rows, micro, "generation_batch_size", of)
    sizes: dict[str, Any] = {}
    if rows is not None:
        if parameters["batch_size"] is not None:
            raise ConfigError(
                f"MortalTrainer(batch_size={parameters['batch_size']}, ...) counts prompts, and "
                "per_device_train_batch_size and generation_batch_size completions; leave out one"
            )
        each = keys.get("training.num_generations") or parameters["num_generations"]
        each = each or of_training["num_generations"].default
        sizes["training.batch_size"] = _exactly(
            rows, each, "the number of completions in a batch", f"num_generations = {each}"
        )
    if pieces is not None and pieces != accumulated:
        sizes["training.trl.steps_per_generation"] = pieces
    return sizes


def steps_of(values: Mapping[str, Any], chosen: set[str], idle: dict[str, str]) -> dict[str, Any]:
    """Counts of batches, from TRL's counts of optimizer updates. `chosen` are the options that a
    person has set; those that change nothing are added to `idle`, with the reason.

    Raises `ConfigError` for a count that ends within a batch.
    """
    pieces, accumulated = values["steps_per_generation"], values["gradient_accumulation_steps"]
    updates = max(1, pieces * values["num_iterations"] // accumulated)

    def batches(name: str, count: Any) -> int:
        if not isinstance(count, int):
            raise ConfigError(f"args.{name} = {count!r}: write a whole number of optimizer updates")
        per = f"the {updates} optimizer updates of a batch (steps_per_generation x num_iterations"
        return _exactly(count, updates, f"args.{name}", f"{per} / gradient_accumulation_steps)")

    found: dict[str, Any] = {"training.max_steps": -1, "evaluation.eval_steps": 0}
    if values["max_steps"] > 0:
        found["training.max_steps"] = batches("max_steps", values["max_steps"])
    check_strategies(values, idle)
    if values["save_strategy"] == "steps" and "save_steps" in chosen:
        found["checkpoints.save_steps"] = batches("save_steps", values["save_steps"])
    if values["eval_strategy"] == "steps":
        every = values["eval_steps"] or values["logging_steps"]
        found["evaluation.eval_steps"] = batches("eval_steps", every)
        found["evaluation.on_start"] = values["eval_on_start"]
    return found


def named_steps(values: Mapping[str, Any], idle: dict[str, str]) -> dict[str, Any]:
    """Return the same for options that are given by name, which count batches already."""
    check_strategies(values, idle)
    found = {key: values[name] for name, key in IN_BATCHES.items() if name in values}
    return found | ({"evaluation.eval_steps": 0} if values.get("eval_strategy") == "no" else {})


def check_strategies(values: Mapping[str, Any], idle: dict[str, str]) -> None:
    """Raise `ConfigError` for evaluations that do not follow steps. A `save_strategy` that does not
    is added to `idle`."""
    if values.get("save_strategy", "steps") != "steps":
        idle["save_strategy"] = "checkpoints are what a run goes on from; see [checkpoints]"
    if values.get("eval_strategy", "no") not in ("no", "steps"):
        raise ConfigError(
            f"eval_strategy = {values['eval_strategy']!r}: evaluations follow steps; write "
            "eval_strategy='steps' with eval_steps"
        )


def _exactly(count: int, part: int, counted: str, parts: str) -> int:
    if count % part:
        raise ConfigError(f"{counted} = {count} does not divide by {parts}")
    return count // part
