"""Check that a model of transformers samples the same beside a longer prompt as alone.

Prompts of a batch are padded to one length. Some recurrent models (RWKV, RecurrentGemma) read the
padding, whatever the mask says: completions would come from another distribution, and the probe of
a version, which is scored alone, would not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from mortal_steps.config.rollout import HALF_PRECISION_TOLERANCE, TOLERANCE
from mortal_steps.errors import EngineError

LIKELIEST = 10
"""Number of the likeliest tokens whose log-probabilities are compared."""


def check_padding(
    model: Any, ids_BP: torch.Tensor, mask_BP: torch.Tensor, prompts_ids: Sequence[Sequence[int]]
) -> None:
    """Raise `EngineError` if the next token of the shortest prompt is another one's where it is
    padded as it is in the batch."""
    lengths = list(map(len, prompts_ids))
    short, long = lengths.index(min(lengths)), lengths.index(max(lengths))
    rows = torch.tensor([short, long], device=ids_BP.device)
    generation = GenerationConfig(
        max_new_tokens=1,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=model.generation_config.pad_token_id,
    )
    with torch.inference_mode():
        beside = model.generate(
            ids_BP[rows], attention_mask=mask_BP[rows], generation_config=generation
        ).logits[0][0]
        ids_1P = torch.tensor([list(prompts_ids[short])], device=ids_BP.device)
        alone = model(ids_1P, attention_mask=torch.ones_like(ids_1P), use_cache=False).logits[0, -1]
    alone, beside = (logits.float().log_softmax(-1) for logits in (alone, beside.to(alone.device)))
    likeliest = alone.topk(min(LIKELIEST, len(alone))).indices
    found = (alone - beside)[likeliest].abs().max().item()
    tolerance = TOLERANCE if model.dtype == torch.float32 else HALF_PRECISION_TOLERANCE
    if not found <= tolerance:
        raise EngineError(
            f"transformers reads the padding of shorter prompts with {model.config.model_type}: "
            f"beside a prompt of {lengths[long]} tokens, the next token of one of {lengths[short]} "
            f"is by {found:.2g} nats more or less likely than alone. Sample prompts that all have "
            "the same number of tokens, or with rollout.engine = 'vllm' if that knows the model"
        )
