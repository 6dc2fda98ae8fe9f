"""Made-up groups, as environments send them."""

import random

PROMPT_TOKENS, SAMPLED_TOKENS = 3, 4
FIRST_LETTER, NUM_TOKENS = 3, 77
"""Of the test model's vocabulary."""


def make_group(number, size=4, **changed):
    """A group, a pure function of its number."""
    source = random.Random(number)
    tokens, masks, logprobs = [], [], []
    for _ in range(size):
        sampled = SAMPLED_TOKENS + source.randint(-2, 2)
        row = [source.randrange(FIRST_LETTER, NUM_TOKENS) for _ in range(PROMPT_TOKENS + sampled)]
        tokens.append(row)
        masks.append([-100] * PROMPT_TOKENS + row[PROMPT_TOKENS:])
        logprobs.append([1.0] * PROMPT_TOKENS + [source.uniform(-5, -3.5) for _ in range(sampled)])
    return {
        "tokens": tokens,
        "masks": masks,
        "scores": [source.random() for _ in range(size)],
        "advantages": None,
        "inference_logprobs": logprobs,
        "messages": None,
        "generation_params": None,
        "overrides": None,
        "group_overrides": None,
        "env_id": 0,
    } | changed
