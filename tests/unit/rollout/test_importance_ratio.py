"""Where sampler and trainer hold the same weights there is nothing to correct, whatever filters
leave of the vocabulary."""

import pytest

from mortal_steps.types import SamplingParams
from tests.support.policy.sampled import DIFFERENCE, RATIO, corrected_and_not
from tests.support.rollout.cases import DRAWS, seeds

LENGTH = 60
PROMPTS = [text for text in ("abc=", "Zz", "x", "12") for _ in range(2)]


def sampled_with(engine, tokenizer, params):
    prompts_ids = [tokenizer(text)["input_ids"] for text in PROMPTS]
    sampled = engine.sample(prompts_ids, seeds(len(PROMPTS)), params)
    return prompts_ids, [(each.token_ids, each.logprobs, each.finish_reason) for each in sampled]


def longer(params):
    names = ("temperature", "top_p", "top_k", "min_p")
    return SamplingParams(max_tokens=LENGTH, **{name: getattr(params, name) for name in names})


@pytest.mark.parametrize("name", DRAWS)
def test_the_correction_changes_nothing(engine, model_a, tokenizer, tmp_path, name):
    params = longer(DRAWS[name])
    sampled = sampled_with(engine, tokenizer, params)
    on, off = corrected_and_not(model_a, tmp_path, *sampled, params)
    for which in ("min", "mean", "max"):
        assert on[f"{RATIO}{which}"] == pytest.approx(1.0, abs=1e-3)
    assert on[DIFFERENCE] < 1e-4
    assert on["completions/max_length"] > 20
    assert on["grad_norm"] == pytest.approx(off["grad_norm"], rel=1e-3) != 0


def test_sequences_of_the_same_policy_are_not_masked(engine, model_a, tokenizer, tmp_path):
    """TRL's off-policy mask reads what was recorded without the correction, too."""
    params = longer(DRAWS["top_k"])
    sampled = sampled_with(engine, tokenizer, params)
    masked = {"trl": {"off_policy_mask_threshold": 1e-3}}
    with_mask = corrected_and_not(model_a, tmp_path / "with", *sampled, params, **masked)
    without = corrected_and_not(model_a, tmp_path / "without", *sampled, params)
    assert [each["grad_norm"] for each in with_mask] == [each["grad_norm"] for each in without]
