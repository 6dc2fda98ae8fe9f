"""`rollout.share_prefill`: a prompt is computed once for all of its completions.

    prompts of the batch     a a a a b b b b
    computed                 a b                  the first forward pass of `generate`
    passed on to `generate`  a a a a b b b b      its logits, and the cache of keys and values

What a batch computes is a function of its prompts alone, so a shard that is made again is the same
to the bit. The last bits are others than without: matrices of another size are rounded otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import Cache, GenerationConfig

from mortal_steps.config.rollout import HALF_PRECISION_TOLERANCE, TOLERANCE
from mortal_steps.errors import EngineError

OF_ROWS = ("input_ids", "attention_mask", "position_ids")
"""Arguments of a model that have an entry for each row of the batch."""
NUM_TRIED = 3
"""Number of tokens that are sampled with a shared cache to see whether the cache can be relied on.
"""


@contextlib.contextmanager
def shared_prefill(model: Any, prompts_ids: Sequence[Sequence[int]]) -> Iterator[None]:
    """Let the first forward pass in the block compute each of a batch's prompts once. Raises
    `EngineError` where the model's cache cannot be repeated."""
    prompts = [tuple(prompt_ids) for prompt_ids in prompts_ids]
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    rows = torch.tensor([places[prompt] for prompt in prompts], device=model.device)
    firsts = torch.tensor([prompts.index(prompt) for prompt in places], device=model.device)

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        entering.remove()
        given = {name: kwargs[name] for name in OF_ROWS if kwargs.get(name) is not None}
        if args or any(tensor.shape[0] != len(prompts) for tensor in given.values()):
            raise cannot_share(model, "it is not called as a language model is")
        return args, {**kwargs, **{name: tensor[firsts] for name, tensor in given.items()}}

    def after(module: Any, args: Any, output: Any) -> Any:
        leaving.remove()
        cache = output.get("past_key_values")
        if not isinstance(cache, Cache):
            raise cannot_share(model, "it keeps no cache of keys and values")
        try:
            cache.batch_select_indices(rows)
        except (AttributeError, NotImplementedError) as error:
            raise cannot_share(model, f"its cache cannot be repeated ({error})") from error
        output["logits"] = output["logits"][rows]
        return output

    entering = model.register_forward_pre_hook(before, with_kwargs=True)
    leaving = model.register_forward_hook(after)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


def check_sharing(model: Any, prompts_ids: Sequence[Sequence[int]], pad_id: int) -> None:
    """Raise `EngineError` if a model with a shared prompt goes on otherwise than with its own:
    a cache may hold more of a row than its keys and values."""
    generation = GenerationConfig(
        max_new_tokens=NUM_TRIED,
        min_new_tokens=NUM_TRIED,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=pad_id,
        eos_token_id=None,
    )
    twice = [prompt_ids for prompt_ids in prompts_ids for _ in range(2)]
    longest = max(map(len, twice))
    ids_BP = torch.tensor(
        [[pad_id] * (longest - len(each)) + list(each) for each in twice], device=model.device
    )
    mask_BP = torch.tensor(
        [[0] * (longest - len(each)) + [1] * len(each) for each in twice], device=model.device
    )
    found = []
    for sharing in (contextlib.nullcontext(), shared_prefill(model, twice)):
        with torch.inference_mode(), sharing:
            sampled = model.generate(ids_BP, attention_mask=mask_BP, generation_config=generation)
        found.append(torch.stack(sampled.logits).float().log_softmax(-1))
    likely = found[0] > -10  # others are rounded in proportion to their size
    difference = (found[0] - found[1])[likely].abs().max().item()
    tolerance = TOLERANCE if model.dtype == torch.float32 else HALF_PRECISION_TOLERANCE
    if not difference <= tolerance:
        raise cannot_share(model, f"log-probabilities differ by {difference:.2g} nats")


def cannot_share(model: Any, why: str) -> EngineError:
    return EngineError(
        "rollout.share_prefill = true: a prompt of "
        f"{model.config.model_type} cannot be computed once for all of its completions: {why}; "
        "leave rollout.share_prefill out"
    )
