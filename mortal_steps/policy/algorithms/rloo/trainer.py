"""RLOOTrainer, run from outside on recorded batches.

It has no `rollout_func` as GRPOTrainer has. Recorded tokens stand in for its own where it tokenizes
prompts and where it samples, and scores reach its reward functions as a dataset's column would.

Private names it leans on, which is why the versions are pinned: TRL `_tokenize_prompts,
_generate_single_turn, _calculate_rewards`.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import RLOOTrainer

from mortal_steps.policy.algorithms.stepping.loop import Stepped


class SteppedRLOOTrainer(Stepped, RLOOTrainer):
    """RLOOTrainer whose loop is run from outside."""

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[Any, None, dict[str, Any]]:
        return self.recorded["prompt_ids"], None, {}

    def _generate_single_turn(self, prompt_ids: Any, *multimodal: Any) -> Any:
        return self.recorded["completion_ids"]

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *completed: Any) -> torch.Tensor:
        scored = zip(inputs, self.recorded["recorded_rewards"], strict=True)
        rows = [{**row, "recorded_rewards": rewards} for row, rewards in scored]
        return super()._calculate_rewards(rows, *completed)
