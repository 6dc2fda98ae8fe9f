"""The sampler of the transformers engine, by itself."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mortal_steps.rollout.engines.transformers.seeded_draw import SeededDraw, invert_cdf
from mortal_steps.types import SamplingParams
from tests.support.rollout.reference import processed_logprobs

# Distinct and an eighth apart, so that no filter has to choose between equals.
distinct_scores = arrays.arrays(
    np.int64,
    st.tuples(st.integers(1, 4), st.integers(1, 30)),
    elements=st.integers(-240, 240),
    unique=True,
).map(lambda eighths: (eighths / 8).astype(np.float32))
uniforms = st.floats(0, 1, exclude_max=True)
sampling = st.builds(
    SamplingParams,
    max_tokens=st.just(1),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 100]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
)


@given(scores=distinct_scores, filtered=st.data(), uniform=uniforms)
def test_the_drawn_token_is_where_the_cumulative_probability_passes_the_uniform(
    scores, filtered, uniform
):
    num_tokens = scores.shape[1]
    kept = filtered.draw(st.sets(st.integers(0, num_tokens - 1), min_size=1))
    mask = np.full(num_tokens, -np.inf)
    mask[list(kept)] = 0
    logprobs_BV = torch.from_numpy(scores + mask).log_softmax(dim=-1)
    for row, token in zip(
        logprobs_BV,
        invert_cdf(logprobs_BV, torch.full((len(scores),), uniform).double()),
        strict=True,
    ):
        probabilities = row.exp().numpy()
        assert probabilities[token] > 0
        below, upto = probabilities[: int(token)].sum(), probabilities[: int(token) + 1].sum()
        assert below <= uniform + 1e-9 and uniform <= upto + 1e-9


@given(scores=distinct_scores, params=sampling, seed=st.integers(0, 2**63 - 1))
def test_a_draw_respects_the_filters_and_reports_the_logprob_without_them(scores, params, seed):
    draw = SeededDraw([seed + row for row in range(len(scores))], params)
    forced = draw(None, torch.from_numpy(scores))
    unfiltered = SamplingParams(max_tokens=1, temperature=params.temperature)
    for row, token, logprob in zip(scores, draw.tokens[0], draw.logprobs[0], strict=True):
        # Scores closer together than rounding may fall on either side of a filter's border.
        low, high = (processed_logprobs(row, nudged) for nudged in nudge_borders(params))
        assert low[token] > -np.inf or high[token] > -np.inf
        assert abs(float(logprob) - processed_logprobs(row, unfiltered)[token]) < 1e-3
    assert torch.equal(forced.argmax(dim=-1), draw.tokens[0])
    assert torch.isinf(forced).sum() == forced.numel() - len(scores)


def nudge_borders(params: SamplingParams) -> list[SamplingParams]:
    return [
        SamplingParams(
            max_tokens=1,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=min(1.0, params.top_p * (1 + sign * 1e-5)) if params.top_p < 1 else 1.0,
            min_p=params.min_p * (1 - sign * 1e-5),
        )
        for sign in (-1, 1)
    ]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**63 - 1), steps=st.integers(1, 200))
def test_uniforms_are_the_seeds_own_stream_across_blocks(seed, steps):
    stream = np.random.Generator(np.random.Philox(key=seed)).random(steps)
    draw = SeededDraw([seed, 5], SamplingParams(max_tokens=steps))
    even = torch.zeros(2, 1000)
    for _ in range(steps):
        draw(None, even)
    drawn = torch.stack(draw.tokens)[:, 0].numpy()
    assert np.all(np.abs(drawn - np.floor(stream * 1000)) <= 1)
