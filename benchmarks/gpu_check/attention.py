"""Gradients of long texts, several times: the same bits?

With short ones, torch's fastest kernels for attention add up in one order; with long ones in any.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one
from mortal_steps.config import NewModelConfig

TOKENS_ON_GPU, TOKENS_ON_CPU = 4096, 256
ROUNDS = 8
TYPES = ("float32", "bfloat16")


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each type, with texts of one length and with padded ones."""
    tokens = TOKENS_ON_CPU if options.tiny else TOKENS_ON_GPU
    answer: dict[str, dict[str, int]] = {}

    def look() -> Found:
        answer.update(options.ask("attention:num_gradients", folder, tokens=tokens))
        return Found()

    asked = check_one("attention", f"gradients of {tokens} tokens", look)
    if not asked.passed:
        yield asked
    for name, different in answer.items():
        yield Checked(
            part="attention",
            name=f"gradients of {tokens} tokens, {name}",
            passed=different["chosen"] == 1,
            took_s=asked.took_s / len(answer),
            measured=f"{_in_words(different['chosen'])}; with any kernels "
            f"{_in_words(different['any'])}",
        )


def _in_words(different: int) -> str:
    return f"{ROUNDS} equal" if different == 1 else f"{different} DIFFERENT of {ROUNDS}"


def num_gradients(job: dict[str, Any]) -> dict[str, dict[str, int]]:
    """How many different gradients there are, with reproducible kernels and with any."""
    from transformers import AutoModelForCausalLM

    from mortal_steps.policy.algorithms.stepping.reproducible import reproducible_kernels
    from mortal_steps.policy.starting_model.new_model import build_model

    folder, tokens = Path(job["folder"]) / "model", job["tokens"]
    shape = NewModelConfig(
        hidden_size=256, num_layers=1, head_dim=64, max_position_embeddings=tokens
    )
    build_model(folder, shape, seed=0)
    found = {}
    for dtype in TYPES:
        for is_padded in (False, True):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).train()
            name = f"{dtype}, {'padded' if is_padded else 'of one length'}"
            with reproducible_kernels():
                chosen = _num_gradients(model, tokens, is_padded=is_padded)
            found[name] = {
                "chosen": chosen,
                "any": _num_gradients(model, tokens, is_padded=is_padded),
            }
    return found


def _num_gradients(model: Any, tokens: int, *, is_padded: bool) -> int:
    import torch

    from mortal_steps.policy.algorithms.stepping.digests import digest

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    ids = torch.arange(2 * tokens, device=device).reshape(2, tokens) % 60 + 3
    mask = torch.ones_like(ids)
    mask[1, : tokens // 3 * is_padded] = 0
    digests = set()
    for _ in range(ROUNDS):
        model.zero_grad()
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        logits.float().square().mean().backward()
        digests.add(digest([parameter.grad for parameter in model.parameters()]))
    return len(digests)
