"""GRPOTrainer, run from outside on recorded batches.

Names it leans on, which is why the versions are pinned: TRL `use_vllm, vllm_generation,
_last_loaded_step, use_adaptive_entropy, entropy_coef, _last_world_entropy` and its file
`entropy_ctrl_state.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl import GRPOTrainer

from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped


class SteppedGRPOTrainer(Stepped, GRPOTrainer):
    """GRPOTrainer whose loop is run from outside."""

    def save_control(self, folder: Path) -> None:
        """Write the coefficient of the entropy bonus, where TRL adapts it."""
        if self.use_adaptive_entropy:
            control = json.dumps(self._entropy_control())
            (folder / "entropy_ctrl_state.json").write_text(control)

    def control_digests(self) -> dict[str, str]:
        """Digest of that."""
        if not self.use_adaptive_entropy:
            return {}
        return {"entropy control": digests.digest(self._entropy_control())}

    def _entropy_control(self) -> dict[str, Any]:
        return {"entropy_coef": self.entropy_coef, "last_world_entropy": self._last_world_entropy}


def recorded_rollouts(prompts: Sequence[Any], trainer: SteppedGRPOTrainer) -> dict[str, list[Any]]:
    """TRL's `rollout_func`: what was sampled elsewhere."""
    return trainer.recorded


class _SampledElsewhere:
    """Stands where TRL keeps its vLLM engine: sampling is done, there is nothing to sync."""

    def sync_weights(self) -> None:
        pass


def let_trl_correct_importance(trainer: GRPOTrainer) -> None:
    """Switch on TRL's truncated importance sampling (https://fengyao.notion.site/off-policy-rl)."""
    # TRL ties the correction to its own vLLM engine. Switching that on after the constructor gives
    # the correction without the engine.
    trainer.use_vllm = True
    trainer.vllm_generation = _SampledElsewhere()
    trainer._last_loaded_step = -1
