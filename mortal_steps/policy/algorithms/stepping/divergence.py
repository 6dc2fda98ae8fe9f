"""Whether a train step left weights that can be trained further."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mortal_steps.errors import DivergedError


def check_finite(model: nn.Module, step: int, told_by: Sequence[str]) -> None:
    """Raise `DivergedError` if a trained weight is infinite or no number.

    It reads all of them, and is called where metrics `told_by` that step were not finite. They may
    be so by themselves: with fp16, TRL skips an update whose gradient is not finite.
    """
    trained = ((name, each) for name, each in model.named_parameters() if each.requires_grad)
    broken = [name for name, each in trained if not each.isfinite().all()]
    if not broken:
        return
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    raise DivergedError(
        f"step {step + 1}: training has diverged. The weights {broken[0]}{more} are not finite any "
        f"more, nor were {', '.join(told_by)}. Fork the run at a checkpoint before this step "
        "(`mortal fork`), with a lower training.learning_rate or training.trl.max_grad_norm"
    )
