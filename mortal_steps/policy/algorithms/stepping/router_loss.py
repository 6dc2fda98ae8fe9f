"""Whether the loss that balances a mixture's experts can be computed, before the first step.

TRL adds it where the model's configuration has a coefficient for it. Some models of transformers
have the coefficient and, as TRL calls them, do not return the loss.

Private name used here: TRL `_get_per_token_logps_and_entropies`.
"""

from __future__ import annotations

import torch
from peft import PeftModel

from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.algorithms.stepping.scoring import without_dropout

NUM_TOKENS = 2


def check_router_loss(trainer: Stepped) -> None:
    """Raise `ConfigError` if TRL adds that loss, and the model does not return it."""
    if not trainer.aux_loss_enabled:
        return
    model = trainer.model
    kind = type(model.get_base_model() if isinstance(model, PeftModel) else model)
    device = next(model.parameters()).device
    ids = torch.zeros((1, NUM_TOKENS), dtype=torch.long, device=device)
    was_training = model.training
    without_dropout(model)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            trainer._get_per_token_logps_and_entropies(
                model, ids, torch.ones_like(ids), 1, compute_aux_loss=True
            )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            "training.trl.router_aux_loss_coef: the model's configuration has a coefficient of "
            f"{trainer.router_aux_loss_coef:g} for a loss that balances its experts, which "
            f"transformers' {kind.__name__} cannot compute ({type(error).__name__}: {error}); set "
            "training.trl.router_aux_loss_coef = 0.0 to train without it"
        ) from error
    finally:
        model.train(was_training)
