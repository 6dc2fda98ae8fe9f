"""TRL's loop turned inside out: one optimizer update at a time.

Stock TRL owns the loop: it samples, scores and updates inside `train()`. A `Stepped` trainer lets
`train()` set everything up, is stopped there by `Observer`, and then runs the body of transformers'
`Trainer._run_epoch` whenever `update` is called.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import Trainer, TrainerCallback
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.stepping.endings import trained_ids
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.model_files.restore import load_adapter, load_model, restore_types
from mortal_steps.policy.ranks.parts import deal_out, parts_of
from mortal_steps.policy.ranks.world import own_rows
from mortal_steps.rollout.engines.base import context_length
from mortal_steps.types import RolloutBatch

logger = logging.getLogger(__name__)

NO_METRICS = {"step_time", "epoch", "step"}
"""Logged by TRL, but no function of the run: the clock, and places in the placeholder dataset."""


class Stepped(Trainer):
    """What makes one of TRL's trainers, named after it among the bases, be run from outside."""

    algorithm: TrlHooks
    """The run's algorithm with its settings."""
    eos_token_ids: list[int]
    """Tokens that end a completion, as TRL has them."""
    recorded: dict[str, list[Any]]
    """Columns of the rollouts being trained on (`columns`)."""
    renewed_at: int | None = None
    """Optimizer updates behind a checkpoint that another configuration wrote."""

    def accept(self, batch: Any) -> list[dict[str, Any]]:
        """Accept a `RolloutBatch` to train on, and return this rank's rows, each with its `prompt`.
        Rollouts are taken out of `recorded` when TRL would sample. Of their rows it only names
        those that it warns about. A batch of another kind is the rows that the algorithm makes of
        it."""
        if self.algorithm.trains_on is not ScoredRollouts:
            return self.algorithm.rows_of(batch)
        end_id, context = self.eos_token_ids[0], context_length(self.model.config, sys.maxsize)
        recorded = columns(batch, self.args.max_completion_length, end_id, context)
        names = [{"prompt": group.problem.id} for group in batch.groups for _ in group.rollouts]
        own = own_rows(len(names))
        self.recorded = {name: rows[own] for name, rows in recorded.items()}
        mine = names[own]
        # TRL gives the model so many rows at a time where it takes no gradient, which decides how
        # numbers are rounded; a selection may have kept fewer than a whole batch.
        pieces = getattr(self.args, "steps_per_generation", self.args.gradient_accumulation_steps)
        self.args.per_device_train_batch_size = len(mine) // pieces
        return mine

    def update(self, micro_batches: Sequence[Any], items: Any = None) -> None:
        """Make one optimizer update, as in `Trainer._run_epoch`: its loss, callbacks and logging.
        `items` is what the loss of the update is a mean over, where TRL does not count by itself.
        """
        self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
        for number, inputs in enumerate(micro_batches, start=1):
            is_last = number == len(micro_batches)
            private.set_sync_gradients(self, is_last)
            # As in `Trainer._run_epoch`: ranks add their gradients up at the last micro-step.
            each = self.accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False)
            apart = self.accelerator.no_sync(self.model_wrapped)
            with contextlib.nullcontext() if is_last or each else apart:
                private.count_loss(self, self.training_step(self.model_wrapped, inputs, items))
            if not is_last:
                self.control = self.callback_handler.on_substep_end(
                    self.args, self.state, self.control
                )
        self._apply_gradients()

    def save_control(self, folder: Path) -> None:
        """Write what the trainer adapts by itself, beside model and optimizer, as TRL reads it."""

    def load_control(self, folder: Path) -> None:
        """Read that, as TRL does where it loads the optimizer itself."""

    def control_digests(self) -> dict[str, str]:
        return {}

    def _apply_gradients(self) -> None:
        handler, norm = self.callback_handler, private.clip_gradients(self)
        self.control = handler.on_pre_optimizer_step(self.args, self.state, self.control)
        self.optimizer.step()
        self.control = handler.on_optimizer_step(self.args, self.state, self.control)
        learning_rate = private.learning_rate(self)
        if not self.accelerator.optimizer_step_was_skipped:
            self.lr_scheduler.step()
        self.model_wrapped.zero_grad()
        self.state.global_step += 1
        self.state.epoch = self.state.global_step / self.args.max_steps
        self.control = handler.on_step_end(self.args, self.state, self.control)
        private.log_update(self, norm, learning_rate)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if isinstance(self.model, PeftModel):
            load_adapter(self.model, Path(resume_from_checkpoint))
        else:
            load_model(self.model, Path(resume_from_checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Take what was learned from the checkpoint; with `renewed_at`, no more than that.
        transformers takes the learning rate, Adam's betas and all other hyperparameters from there
        too, whatever the arguments say."""
        own = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]
        if checkpoint is not None and self.is_fsdp_enabled:
            self._load_parts(Path(checkpoint))
        else:
            super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            restore_types(self.optimizer, Path(checkpoint) / OPTIMIZER_NAME)
        if self.is_fsdp_enabled:
            deal_out(self.optimizer)
        if self.renewed_at is None:
            return
        for group, settings in zip(self.optimizer.param_groups, own, strict=True):
            group.update(settings)
        self.lr_scheduler.base_lrs = [settings["initial_lr"] for settings in own]
        self.lr_scheduler.last_epoch = self.renewed_at - 1
        self.lr_scheduler.step()
        self.state.global_step = self.renewed_at
        self.state.compute_steps(self.args, self.args.max_steps)

    def _load_parts(self, checkpoint: Path) -> None:
        """Load this rank's part of the optimizer, tensor by tensor, and the schedule."""
        whole = torch.load(
            checkpoint / OPTIMIZER_NAME, map_location="cpu", weights_only=True, mmap=True
        )
        self.optimizer.load_state_dict(parts_of(whole, self.optimizer))
        schedule = torch.load(checkpoint / SCHEDULER_NAME, weights_only=True)
        self.lr_scheduler.load_state_dict(schedule)
        self.load_control(checkpoint)


def columns(
    batch: RolloutBatch,
    max_completion_length: int,
    end_id: int | None,
    context: int = sys.maxsize,
) -> dict[str, list[Any]]:
    """Return the batch as GRPOTrainer's `rollout_func` does: one row per rollout, in group and
    generation order.

    Completions are cut to `max_completion_length` tokens, and their logprobs and masks with them;
    one whose `finish_reason` says that it has ended, has ended for TRL, too, which looks for a
    last token `end_id` (`endings.py`).
    There is an `env_mask` where an environment has tokens in the batch: TRL keeps those out of the
    loss, of its weights and of the lengths it logs. Of an episode that failed with more tokens than
    the model's `context`, which version 0.1.0 left in its shard, one of the prompt and one of the
    completion are kept: all rows are padded to the longest.
    """
    rows = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
    recorded: dict[str, list[Any]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "recorded_rewards")
    }
    ends: list[int] = []
    for group, rollout in rows:
        made, end = rollout.completion, max_completion_length
        prompt_ids = list(group.prompt_ids if made.prompt_ids is None else made.prompt_ids)
        if made.has_failed and len(prompt_ids) + len(made.token_ids[:end]) > context:
            logger.warning(
                "step %d: an episode of %s failed with %d tokens of a prompt, and takes no part",
                *(batch.step, group.problem.id, len(prompt_ids)),
            )
            prompt_ids, end = prompt_ids[-1:], 1
        recorded["prompt_ids"].append(prompt_ids)
        recorded["completion_ids"].append(trained_ids(made, end, end_id))
        recorded["logprobs"].append(list(made.logprobs[:end]))
        recorded["recorded_rewards"].append(dict(rollout.rewards))
        ends.append(end)
    completions = [rollout.completion for _, rollout in rows]
    if any(rollout.teacher_logprobs is not None for _, rollout in rows):
        recorded["teacher_logprobs"] = [rollout.teacher_logprobs for _, rollout in rows]
    if any(completion.num_sampled < len(completion.token_ids) for completion in completions):
        masked = zip(completions, ends, strict=True)
        recorded["env_mask"] = [completion.loss_mask[:end] for completion, end in masked]
    return recorded


class SetUpDone(Exception):
    """Raised inside `train()` once everything is set up."""


class Observer(TrainerCallback):
    """Ends `train()` before its first step, and hears what TRL logs."""

    setting_up = False

    def __init__(self) -> None:
        self._logged: dict[str, float | None] = {}
        self.not_finite: list[str] = []
        """Names of the metrics that the last step left out."""

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.setting_up:
            raise SetUpDone

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._logged = dict(logs)

    def take_metrics(self) -> dict[str, float]:
        """Return the last log entry, without what the clock decides or has no finite value."""
        logged, self._logged = self._logged, {}
        metrics: dict[str, float] = {}
        self.not_finite = []
        for name, value in logged.items():
            if name in NO_METRICS or value is None:
                continue
            if math.isfinite(value):
                metrics[name] = float(value)
            else:
                self.not_finite.append(name)
                logger.warning("metric %s is %s in this step and left out", name, value)
        return metrics
