"""pass@k: how likely one of k completions is right."""

import math


def pass_at(k: int, num_completions: int, num_right: int) -> float:
    """Return the unbiased estimate from a problem's completions, of which `num_right` are right
    (Chen et al. 2021, https://arxiv.org/abs/2107.03374), in integers. Raises `ValueError` for more
    draws than there are completions."""
    if not 0 < k <= num_completions:
        raise ValueError(f"pass@{k} needs {k} completions or more; there are {num_completions}")
    return 1 - math.comb(num_completions - num_right, k) / math.comb(num_completions, k)
