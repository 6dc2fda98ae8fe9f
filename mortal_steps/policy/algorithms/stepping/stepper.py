"""One of TRL's trainers, taken one train step at a time with rollouts from outside.

`TrlStepper` hands TRL one recorded batch per `train_step`. Losses, advantages, metrics, optimizer
and schedule are TRL's own. How the loop is turned inside out, and what that leans on: loop.py.

One train step with 8 rows, gradient_accumulation_steps=2, num_iterations=2 (4 micro-steps):

    micro-step   0             1             2             3
    rows         0..3 *        4..7          0..3          4..7        * TRL takes and shuffles them
    update                     1st                         2nd
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import Dataset
from torch import nn
from transformers import PrinterCallback
from transformers.utils.logging import disable_progress_bar

from mortal_steps.errors import ConfigError, DivergedError, ModelError
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.base import AdapterBase, Stepper
from mortal_steps.policy.algorithms.stepping import digests, state
from mortal_steps.policy.algorithms.stepping.loop import Observer, SetUpDone, Stepped
from mortal_steps.policy.algorithms.stepping.lora import lora_config, quantization_config
from mortal_steps.policy.algorithms.stepping.options import build_options
from mortal_steps.policy.algorithms.stepping.reproducible import (
    prefer_reproducible_kernels,
    seed_everything,
    streams_digest,
)
from mortal_steps.policy.algorithms.stepping.scoring import logprobs_of, padding_warnings
from mortal_steps.policy.algorithms.stepping.state import TrainerState
from mortal_steps.policy.algorithms.stepping.trainers import (
    NO_ROWS,
    build_trainer,
    recorded_reward,
)
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.gpu import on_cpu_beside_gpu, training_place
from mortal_steps.policy.model_files.tokenizer import load_tokenizer, save_tokenizer
from mortal_steps.policy.model_files.writing import (
    adapter_tensors,
    cast,
    published_tensors,
    save_adapter,
    save_model,
    save_trained,
)
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.ranks.parts import forget_whole, local_of
from mortal_steps.policy.ranks.world import num_ranks, rank
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.types import TrainingPlace

UNSUITED = (AttributeError, NotImplementedError, TypeError)
"""What libraries raise where an option and several ranks do not fit together."""


class TrlStepper(Stepper):
    """One run's trainer: `begin`, then a `train_step` per batch.

    The trainer is the algorithm's `trainer_class`. `autocast` decides on bfloat16 autocast where
    the configuration does not; by default the device does. With `use_cpu`, GPUs are left alone.
    Raises `ConfigError` for what TRL refuses and `ModelError` for an unusable model or tokenizer.
    """

    observer_kind: ClassVar[type[Observer]] = Observer

    def __init__(
        self,
        algorithm: TrlHooks,
        plan: TrainerPlan,
        *,
        model_path: str,
        num_steps: int,
        output_dir: Path,
        autocast: bool | None = None,
        base: AdapterBase | None = None,
        use_cpu: bool = False,
    ) -> None:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        disable_progress_bar()
        if plan.training.deterministic:
            prefer_reproducible_kernels()
        self._plan = plan
        self._model_path = model_path
        self._base = base or AdapterBase.at(plan.model, model_path)
        self._num_steps = num_steps
        self._observer = self.observer_kind()
        self._sums = digests.WeightSums()
        self._published_in = getattr(torch, plan.published_in or "", None)
        self.tokenizer = load_tokenizer(model_path, plan.model.trust_remote_code)
        arguments = build_options(
            plan,
            algorithm,
            num_steps=num_steps,
            output_dir=output_dir,
            autocast=autocast,
            use_cpu=use_cpu,
        )
        private.use_one_device(arguments)
        try:
            self._trainer = build_trainer(
                algorithm,
                corrects=plan.corrects_importance,
                model=model_path,
                args=arguments,
                attributes=self._class_attributes(),
                **self._given(),
                **algorithm.arguments(),
                processing_class=self.tokenizer,
                peft_config=lora_config(plan.training, algorithm.task),
                quantization_config=quantization_config(plan.model),
                callbacks=[self._observer],
            )
        except OSError as error:
            raise ModelError(f"cannot load the model {model_path}: {error}") from error
        except (ValueError, NotImplementedError, ImportError) as error:
            raise ConfigError(f"TRL refuses this configuration: {error}") from error
        self._trainer.remove_callback(PrinterCallback)

    def _class_attributes(self) -> Mapping[str, Any]:
        """Return what the trainer's constructor finds in its class."""
        return {}

    def _given(self) -> Mapping[str, Any]:
        """Return TRL's arguments about data."""
        rewards = [recorded_reward(name) for name in self._plan.reward_weights]
        return {
            **({"reward_funcs": rewards} if self._plan.algorithm.learns_from_rewards else {}),
            # Never read: `begin` ends before the first row. Without a length, transformers has
            # no epochs to run out of, so that even a finished run can be resumed.
            "train_dataset": Dataset.from_list(NO_ROWS).to_iterable_dataset(),
        }

    def begin(
        self,
        resume_from: Path | None = None,
        *,
        renewed_at: int | None = None,
    ) -> None:
        """See `Stepper.begin`. Of a folder that another configuration wrote, model, optimizer
        moments and what TRL adapts by itself are taken, and the schedule goes on where
        `renewed_at` steps of this configuration would have led."""
        self._sums.forget()
        if renewed_at is not None:
            updates = self._plan.training.optimizer_steps_per_batch
            self._trainer.renewed_at = renewed_at * updates
        self._observer.setting_up = True
        try:
            self._trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
        except SetUpDone:
            self._observer.setting_up = False
        except UNSUITED as error:
            options = self._plan.training.trl
            if num_ranks() == 1 or not options or resume_from:  # they were tried on one rank
                raise
            keys = ", ".join(f"training.trl.{name} = {value!r}" for name, value in options.items())
            raise ConfigError(
                f"{keys}: TRL cannot train on {num_ranks()} ranks with this "
                f"({type(error).__name__}: {error}); leave it out, or training.ranks"
            ) from error
        if self._trainer.is_fsdp_enabled:
            forget_whole(self._trainer.optimizer)
        accumulation = self._plan.training.accumulation_steps
        self._trainer.current_gradient_accumulation_steps = accumulation
        if resume_from:
            state.restore_reference(self._trainer, resume_from, renewed=renewed_at is not None)

    def train_step(self, batch: Any, *, seed: int) -> dict[str, float]:
        """Train on one batch; a pure function of the state before, the batch and `seed`. Returns
        TRL's metrics of the step, without those that the clock decides or that have no finite
        value. Raises `DivergedError` as `check_finite` does."""
        self._sums.forget()
        seed_everything(seed + rank())  # as accelerate has it
        rows = self._trainer.accept(batch)
        # Every micro-step is given all rows, as TRL's trainers expect: `_prepare_inputs` selects.
        micro_batches = [rows] * self._trainer.args.gradient_accumulation_steps
        for _ in range(self._plan.training.optimizer_steps_per_batch):
            self._trainer.update(micro_batches)
        metrics = self._observer.take_metrics()
        if self._observer.not_finite:
            check_finite(self._trainer.model, batch.step, self._observer.not_finite)
        self._trainer.state.log_history.clear()
        return metrics

    @property
    def trainer(self) -> Stepped:
        """TRL's trainer."""
        return self._trainer

    @property
    def optimizer_steps(self) -> int:
        return self._trainer.state.global_step

    def random_digest(self) -> str:
        # Python's and numpy's are seeded with each step, too, but any thread of the process may
        # draw from them, such as a client that connects again. No bit of a run depends on them.
        return streams_digest()

    @property
    def num_parameters(self) -> int:
        return int(self._trainer.model.num_parameters())

    @property
    def num_trained(self) -> int:
        return int(self._trainer.model.num_parameters(only_trainable=True))

    @property
    def autocast(self) -> bool:
        return bool(self._trainer.args.bf16)

    def place(self) -> TrainingPlace:
        return training_place(self._trainer)

    def warnings(self) -> tuple[str, ...]:
        return tuple(filter(None, [on_cpu_beside_gpu(), *padding_warnings(self._trainer)]))

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See `Stepper.score`. It is computed in the type of the weights: an engine that has these
        has no part in the trainer's autocast. Where they are published in another type, weights are
        rounded as they are there. Training mode and random streams stay as they are."""
        return logprobs_of(self._trainer.model, token_ids, self._published_in)

    def save_state(self, folder: Path) -> None:
        state.take_state(self._trainer, self._base, copy=False).save_state(folder)

    def why_no_snapshot(self) -> str | None:
        kind = type(self)
        for name in ("save_state", "digests"):
            if name in vars(self) or getattr(kind, name) is not getattr(TrlStepper, name):
                return f"{kind.__name__} has a `{name}` of its own"
        return state.why_no_copy(self._trainer)

    def snapshot(self) -> TrainerState:
        return state.take_state(self._trainer, self._base, copy=True, add_up=self._sums.find)

    def weights_digest(self) -> str:
        return digests.weights_digest(self._trainer.model, self._sums.note)

    def digests(self) -> dict[str, str]:
        return state.state_digests(self._trainer)

    def export_weights(self, folder: Path) -> None:
        if self._plan.training.publishes_adapter:
            save_adapter(self._trainer.model, folder, self._base, self._published_in)
        else:
            save_model(self._trainer.model, folder, self._published_in)

    def published_digests(self) -> dict[str, str]:
        model, dtype = self._trainer.model, self._published_in
        whole = not self._plan.training.publishes_adapter
        tensors = published_tensors(model) if whole else adapter_tensors(model)
        return tensor_digests(
            ((name, cast(tensor, dtype)) for name, tensor in tensors.items()), self._sums.find
        )

    def save_final(self, folder: Path) -> None:
        base = AdapterBase.at(self._plan.model, self._model_path)  # where it is now: others load it
        save_trained(self._trainer.model, folder, base, method=private.method_of(self._trainer))
        if rank() == 0:
            save_tokenizer(self.tokenizer, folder)

    def save_merged(self, folder: Path) -> None:
        save_model(self._trainer.model, folder)
        save_tokenizer(self.tokenizer, folder)


def check_finite(model: nn.Module, step: int, metrics: Sequence[str]) -> None:
    """Raise `DivergedError` if a trained weight is infinite or no number. It reads all of them, and
    is called where these `metrics` of the step were not finite. They may be so by themselves: with
    fp16, TRL skips an update whose gradient is not finite."""
    trained = ((name, each) for name, each in model.named_parameters() if each.requires_grad)
    broken = [name for name, each in trained if not local_of(each).isfinite().all()]
    if not broken:
        return
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    raise DivergedError(
        f"step {step + 1}: training has diverged. The weights {broken[0]}{more} are not finite any "
        f"more, nor were {', '.join(metrics)}. Fork the run at a checkpoint before this step "
        "(`mortal fork`), with a lower training.learning_rate or training.trl.max_grad_norm"
    )
