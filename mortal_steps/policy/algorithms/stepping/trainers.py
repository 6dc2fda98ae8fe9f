"""TRL's trainers, run from outside on recorded batches.

GRPOTrainer takes what was sampled elsewhere by its `rollout_func`. RLOOTrainer has none: recorded
tokens stand in for its own where it tokenizes prompts and where it samples, and scores reach its
reward functions as a dataset's column would. DistillationTrainer has neither: it is given tokens in
the same places, and asks for no scores. What derives from it to ask a server, too, is given records
in its place (recorded_teachers.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from trl import DistillationTrainer, GRPOTrainer, RLOOTrainer

from mortal_steps.config.trl_options import CONFIGS, CONFIGS_OF_ROWS, CONFIGS_WITHOUT_REWARDS
from mortal_steps.errors import ConfigError
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows.trainer import SteppedOnRows
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.algorithms.stepping.trls import trainer_of
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.ranks.loading import loading_once
from mortal_steps.policy.ranks.world import neighbours
from mortal_steps.types import RolloutBatch

CONTROL_FILE = "entropy_ctrl_state.json"
NO_ROWS = [{"prompt": ""}]
"""TRL wants a dataset. This one is in memory: `datasets` makes a folder for one that it generates,
in the user's home, which may be read-only in a container."""


def check_trainer(algorithm: TrlHooks) -> None:
    """Raise `ConfigError` unless the algorithm's trainer is derived from one of TRL's that can be
    run from outside, and takes the configuration that the algorithm names."""
    named = f"algorithm.type = {algorithm.type!r}"
    configuration = getattr(algorithm, "trl_config", None)
    of_completions = {**CONFIGS, **CONFIGS_WITHOUT_REWARDS}
    known = CONFIGS_OF_ROWS if algorithm.judges_by_loss else of_completions
    if configuration not in known.values():
        raise ConfigError(
            f"{named}: trl_config = {configuration!r} is not one of "
            f"{', '.join(known.values())}; derive the algorithm from GRPO or RLOO, which have "
            "theirs"
        )
    kind, base = algorithm.trainer_class(), trainer_of(configuration)
    if not issubclass(kind, base):
        raise ConfigError(
            f"{named}: the trainer {kind.__name__} is not derived from TRL's {base.__name__}, "
            f"which takes trl_config = {configuration!r}; derive it from that, or give the "
            "algorithm the trl_config of its trainer"
        )


def build_trainer(
    algorithm: TrlHooks, *, corrects: bool, attributes: Mapping[str, Any], **arguments: Any
) -> Stepped:
    """Build the algorithm's trainer, to be run from outside, with these arguments of TRL's and
    these attributes of its class.

    With `corrects`, TRL corrects for the difference between sampler and trainer by truncated
    importance sampling (https://fengyao.notion.site/off-policy-rl). Raises as `check_trainer`.
    """
    check_trainer(algorithm)
    kind = algorithm.trainer_class()
    found = (ours for trls, ours in STEPPED.items() if issubclass(kind, trls))
    base = next(found, SteppedOnRows)
    if issubclass(kind, GRPOTrainer):
        arguments["rollout_func"] = recorded_rollouts
    own = {"algorithm": algorithm, **attributes}
    stepped: type[Stepped] = type(kind.__name__, (base, kind), own)
    shares = arguments["args"].fsdp and neighbours
    with loading_once() if shares else contextlib.nullcontext():
        trainer = stepped(**arguments)
    if corrects and isinstance(trainer, GRPOTrainer):
        private.correct_importance(trainer)
    return trainer


class SteppedGRPOTrainer(Stepped, GRPOTrainer):
    """GRPOTrainer whose loop is run from outside."""

    tool_metrics: dict[str, float]
    """What TRL logs of the tool calls in the rollouts being trained on."""

    def accept(self, batch: Any) -> list[dict[str, Any]]:
        scored = self.algorithm.trains_on is ScoredRollouts
        self.tool_metrics = tool_metrics(batch) if scored else {}
        return super().accept(batch)

    def save_control(self, folder: Path) -> None:
        """Write the coefficient of the entropy bonus, where TRL adapts it."""
        if self.use_adaptive_entropy:
            (folder / CONTROL_FILE).write_text(
                json.dumps(private.entropy_control(self)), encoding="utf-8"
            )

    def load_control(self, folder: Path) -> None:
        """Read what `save_control` wrote."""
        if self.use_adaptive_entropy and (folder / CONTROL_FILE).exists():
            private.set_entropy_control(
                self, json.loads((folder / CONTROL_FILE).read_text(encoding="utf-8"))
            )

    def control_digests(self) -> dict[str, str]:
        if not self.use_adaptive_entropy:
            return {}
        return {"entropy control": digests.digest(private.entropy_control(self))}


def recorded_rollouts(prompts: Sequence[Any], trainer: SteppedGRPOTrainer) -> dict[str, list[Any]]:
    """Return what was sampled elsewhere, and log its tool calls; TRL's `rollout_func`."""
    for name, value in trainer.tool_metrics.items():
        private.log_metric(trainer, name, value)
    return trainer.recorded


def tool_metrics(batch: RolloutBatch) -> dict[str, float]:
    """Return the metrics that TRL logs in a run with tools: calls per completion, and the share of
    them that failed. Without tools there are none."""
    completions = [rollout.completion for group in batch.groups for rollout in group.rollouts]
    episodes = [each.episode for each in completions if each.episode is not None]
    if not episodes:
        return {}
    # As tensors, since TRL divides those: in float32.
    calls = torch.tensor(sum(episode.num_calls for episode in episodes))
    failed = torch.tensor(sum(episode.num_failed_calls for episode in episodes))
    return {
        "tools/call_frequency": (calls / len(completions)).item(),
        "tools/failure_frequency": (failed / calls).item() if calls > 0 else 0.0,
    }


class _SingleTurns(Stepped):
    """What gives recorded tokens to a trainer without a `rollout_func`."""

    def accept(self, batch: Any) -> list[dict[str, Any]]:
        """See `Stepped.accept`. Raises `ConfigError` for a batch with tokens that an environment
        wrote: such a trainer would train on them."""
        if self.algorithm.trains_on is ScoredRollouts:
            _check_is_sampled(batch, self.algorithm.type)
        return super().accept(batch)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[Any, None, dict[str, Any]]:
        return self.recorded["prompt_ids"], None, {}

    def _generate_single_turn(self, prompt_ids: Any, *multimodal: Any) -> Any:
        return self.recorded["completion_ids"]


class SteppedDistillationTrainer(_SingleTurns, DistillationTrainer):
    """DistillationTrainer whose loop is run from outside."""


class SteppedRLOOTrainer(_SingleTurns, RLOOTrainer):
    """RLOOTrainer whose loop is run from outside."""

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *completed: Any) -> torch.Tensor:
        scored = zip(inputs, self.recorded["recorded_rewards"], strict=True)
        rows = [{**row, "recorded_rewards": rewards} for row, rewards in scored]
        return super()._calculate_rewards(rows, *completed)


def _check_is_sampled(batch: RolloutBatch, algorithm: str) -> None:
    for group in batch.groups:
        for completion in (rollout.completion for rollout in group.rollouts):
            if completion.num_sampled < len(completion.token_ids):
                raise ConfigError(
                    f"algorithm.type = {algorithm!r}: in step {batch.step + 1}, completions of "
                    f"{group.problem.id} hold tokens of an environment, between the turns of "
                    "the model, and its trainer in TRL cannot leave them out of the loss; train on "
                    "completions of one turn, or set algorithm.type = 'grpo'"
                )


def recorded_reward(name: str) -> Callable[..., list[float | None]]:
    """Return a reward function that returns each row's recorded score `name`."""

    def reward(recorded_rewards: Sequence[Any], **kwargs: Any) -> list[float | None]:
        return [rewards[name] for rewards in recorded_rewards]

    reward.__name__ = name
    return reward


STEPPED: Mapping[type, type[Stepped]] = {
    GRPOTrainer: SteppedGRPOTrainer,
    RLOOTrainer: SteppedRLOOTrainer,
    DistillationTrainer: SteppedDistillationTrainer,
}
"""Trainer of TRL's that learns from completions -> what makes it be run from outside."""
