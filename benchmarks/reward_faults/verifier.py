"""A verifier of the letters demo that breaks down on three problems in ten, in two ways.

A problem is struck or not by its prompt and the step; asked again, the verifier breaks down again.
In a struck problem, the check of an answer is lost

    at random    with probability 1/2, whatever the answer
    when right   if the answer is all right: it is the one that passes every check, and so takes
                 longest, as programs do that pass test case after test case

The functions whose names end in `_as_0` score what is lost 0, as an `except` would around them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

STRUCK = 0.3
"""Share of the problems."""


class VerifierBrokeDown(Exception):
    """The check of an answer was lost."""


def letters(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """Return the share of letters in their place; 0 for an answer of another length."""
    return [
        sum(map(str.__eq__, text, right)) / len(right) if len(text) == len(right) else 0.0
        for text, right in zip(completions, answer, strict=True)
    ]


def lost_at_random(**kwargs: Any) -> list[float]:
    return _checked(_at_random, **kwargs)


def lost_at_random_as_0(**kwargs: Any) -> list[float]:
    return _checked(_at_random, as_0=True, **kwargs)


def lost_when_right(**kwargs: Any) -> list[float]:
    return _checked(_when_right, **kwargs)


def lost_when_right_as_0(**kwargs: Any) -> list[float]:
    return _checked(_when_right, as_0=True, **kwargs)


def _checked(
    lost: Callable[[str, float], bool],
    *,
    prompts: Sequence[str],
    trainer_state: Any,
    as_0: bool = False,
    **kwargs: Any,
) -> list[float]:
    scores = letters(**kwargs)
    seen: Counter[str] = Counter()
    for row, prompt in enumerate(prompts):
        name = f"{trainer_state.global_step}/{prompt}"
        seen[prompt] += 1
        if _chance(name) < STRUCK and lost(f"{name}/{seen[prompt]}", scores[row]):
            if not as_0:
                raise VerifierBrokeDown(prompt)
            scores[row] = 0.0
    return scores


def _at_random(name: str, score: float) -> bool:
    return _chance(name) < 0.5


def _when_right(name: str, score: float) -> bool:
    return score == 1.0


def _chance(name: str) -> float:
    """From 0 to 1, and always the same for this name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
