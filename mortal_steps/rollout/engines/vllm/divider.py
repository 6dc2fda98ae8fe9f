"""What every process of vLLM imports that holds a part of a model which scores tokens."""

from __future__ import annotations

from typing import Any

import torch

from mortal_steps.rollout.engines.vllm.witness import Witness


class Divider(Witness):
    """Methods that a worker of vLLM has beside its own (`worker_extension_cls`)."""

    def divide_logits(self, temperature: float) -> None:
        """Divide each logit that the model gives from now on, in float32: both of vLLM's model
        runners read log-probabilities of a prompt from what this method of the model returns."""
        model: Any = self.model_runner.get_model()
        compute = model.compute_logits

        def divided(*args: Any, **options: Any) -> Any:
            logits = compute(*args, **options)
            return None if logits is None else logits.to(torch.float32, copy=True).div_(temperature)

        model.compute_logits = divided
