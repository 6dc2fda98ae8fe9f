"""Names of TRL's trainers and losses, written where a name of an algorithm belongs: what to say."""

from __future__ import annotations

import re
from typing import get_args

from mortal_steps.config.training import LossType

OTHERS = {
    "sft": "SFT learns from examples",
    "dpo": "DPO learns from pairs of a better and a worse answer",
    "orpo": "ORPO learns from pairs of a better and a worse answer",
    "cpo": "CPO learns from pairs of a better and a worse answer",
    "tpo": "TPO learns from a better, a worse and a reference answer",
    "kto": "KTO learns from answers marked as good or bad",
    "reward": "RewardTrainer makes a reward model from pairs of a better and a worse answer",
    "distillation": "DistillationTrainer learns from a teacher",
    "gkd": "GKD learns from a teacher",
    "gold": "GOLD learns from a teacher",
    "online_dpo": "OnlineDPO samples pairs itself and learns which is better",
    "gmpo": "GMPO is a variant of GRPO",
    "async_grpo": "AsyncGRPOTrainer samples beside the training (here that is rollout.staleness)",
}
"""Trainers that TRL has, some as experiments, and that no run here can have."""

GONE = {"ppo": "PPO", "nash_md": "Nash-MD", "xpo": "XPO", "prm": "PRM", "bco": "BCO"}
"""Trainers that TRL had earlier."""

TO_SCORES = "MORTAL learns from completions that it samples and scores"
THERE_ARE = (
    f"there are 'grpo', with the losses of training.loss_type ({', '.join(get_args(LossType))}), "
    "and 'rloo'"
)


def answer_to(name: str) -> str | None:
    """What to say of a `type` that TRL's users know, in whatever spelling: `PPOTrainer`, `dr-grpo`.

    None for a name that means nothing in TRL.
    """
    plain = _plain(name)
    for known in ("grpo", "rloo"):
        if plain == known:
            return f"it is written {known!r}"
    for loss in get_args(LossType):
        if plain == _plain(loss):
            return f"it is a loss of GRPO; write training.loss_type = {loss!r}"
    if plain == "gspo":
        return "it is GRPO with training.trl.importance_sampling_level = 'sequence'"
    for trainer, title in GONE.items():
        if plain == _plain(trainer):
            return f"TRL has no {title} trainer any more; {THERE_ARE}"
    for trainer, learns in OTHERS.items():
        if plain == _plain(trainer):
            return f"TRL's {learns}, and {TO_SCORES}; {THERE_ARE}"
    return None


def _plain(name: str) -> str:
    """Lower case, without what stands between words, and without `Trainer` and `Config`."""
    letters = re.sub(r"[\W_]+", "", name).lower()
    return re.sub(r"(trainer|config)$", "", letters)
