"""The transformers engine: right distribution, right logprobs, same tokens for same seeds."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from mortal_steps.config import ModelConfig, NewModelConfig, RolloutConfig
from mortal_steps.errors import EngineError, ModelError
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.schedule import derive_seed
from mortal_steps.types import SamplingParams
from tests.support.refused import refused
from tests.support.rollout.cases import DRAWS, PROBE_IDS
from tests.support.rollout.reference import completion_logprobs, processed_logprobs
from tests.support.rollout.tiny_model import logprobs_of, read_model

EOS = 1
PROMPTS = ["abc=", "hello world", "x", "reverse 12345 =>", "a b c d e f g h", "Zz"]
PARAMS = {**DRAWS, "hot": SamplingParams(max_tokens=12, temperature=1.7)}


def seeds(count: int) -> list[int]:
    return [derive_seed("test", index) for index in range(count)]


def ids_of(tokenizer, texts):
    return [tokenizer(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_logprobs_are_over_the_whole_vocabulary(engine, model_a, tokenizer, params):
    model = read_model(model_a)
    prompts = ids_of(tokenizer, PROMPTS)
    for prompt, sampled in zip(
        prompts, engine.sample(prompts, seeds(len(prompts)), params), strict=True
    ):
        expected = completion_logprobs(model, prompt, sampled.token_ids, params)
        assert sampled.logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_tokens_are_drawn_with_their_probability(engine, model_a, tokenizer, params):
    """Chi-square test of the first token of 6000 completions, at the level of 0.1 %."""
    draws = 6000
    (prompt,) = ids_of(tokenizer, ["abc="])
    one_token = SamplingParams(
        max_tokens=1,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
    )
    sampled = engine.sample([prompt] * draws, seeds(draws), one_token)
    counts = Counter(completion.token_ids[0] for completion in sampled)
    with torch.inference_mode():
        logits = read_model(model_a)(torch.tensor([prompt])).logits[0, -1].numpy()
    probabilities = np.exp(processed_logprobs(logits, params))
    assert all(probabilities[token] > 0 for token in counts)
    assert chi_square_p(counts, probabilities, draws) > 1e-3


def chi_square_p(counts: Counter, probabilities: np.ndarray, draws: int) -> float:
    """p-value of Pearson's test; tokens expected less than five times count as one."""
    common = np.flatnonzero(probabilities * draws >= 5)
    observed = np.array([counts[token] for token in common], dtype=float)
    expected = probabilities[common] * draws
    rest = draws - expected.sum()
    if rest >= 5:
        observed = np.append(observed, draws - observed.sum())
        expected = np.append(expected, rest)
    statistic = ((observed - expected) ** 2 / expected).sum()
    half_degrees = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half_degrees, torch.tensor(statistic / 2)))


def test_second_tokens_are_independent_of_the_first_ones(engine, tokenizer):
    """Rows of one prompt that drew the same first token draw its continuation properly."""
    (prompt,) = ids_of(tokenizer, ["abc="])
    params = SamplingParams(max_tokens=2, top_k=2)
    pairs = Counter(
        tuple(sampled.token_ids) for sampled in engine.sample([prompt] * 4000, seeds(4000), params)
    )
    (most_common, _), *_ = Counter({first: 1 for first, *_ in pairs}).most_common()
    firsts = {first for first, *_ in pairs}
    assert len(firsts) == 2 and most_common in firsts
    for first in firsts - {EOS}:
        seconds = {pair: count for pair, count in pairs.items() if pair[0] == first}
        total = sum(seconds.values())
        scored = {pair: engine.score([*prompt, *pair])[-1] for pair in seconds}
        weights = {pair: np.exp(logprob) for pair, logprob in scored.items()}
        for pair, count in seconds.items():
            expected = weights[pair] / sum(weights.values())
            assert count / total == pytest.approx(expected, abs=4 * np.sqrt(0.25 / total))


def test_a_completion_does_not_depend_on_the_rest_of_the_batch(engine, tokenizer):
    prompts, params = ids_of(tokenizer, PROMPTS), SamplingParams(max_tokens=40)
    together = engine.sample(prompts, seeds(6), params)
    backwards = engine.sample(prompts[::-1], seeds(6)[::-1], params)[::-1]
    alone = [engine.sample([p], [s], params)[0] for p, s in zip(prompts, seeds(6), strict=True)]
    for others in (backwards, alone):
        for one, other in zip(together, others, strict=True):
            assert one.token_ids == other.token_ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_another_seed_gives_another_completion(engine, tokenizer):
    prompts = ids_of(tokenizer, ["abc="]) * 32
    sampled = engine.sample(prompts, seeds(32), SamplingParams(max_tokens=8))
    assert len({tuple(s.token_ids) for s in sampled}) == 32


def test_temperature_zero_takes_the_most_likely_token_and_ignores_filters(
    engine, model_a, tokenizer
):
    model = read_model(model_a)
    (prompt,) = ids_of(tokenizer, ["abc="])
    params = SamplingParams(max_tokens=20, temperature=0.0, top_p=0.1, top_k=3, min_p=0.9)
    (sampled,) = engine.sample([prompt], [7], params)
    ids = list(prompt)
    for token in sampled.token_ids:
        with torch.inference_mode():
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    expected = completion_logprobs(model, prompt, sampled.token_ids, SamplingParams(max_tokens=20))
    assert sampled.logprobs == pytest.approx(expected, abs=1e-5)


def test_a_completion_ends_with_its_end_token_or_at_max_tokens(engine, tokenizer):
    prompts = ids_of(tokenizer, PROMPTS) * 20
    params = SamplingParams(max_tokens=30, temperature=1.3)
    sampled = engine.sample(prompts, seeds(len(prompts)), params)
    assert {s.finish_reason for s in sampled} == {"stop", "length"}
    for s in sampled:
        assert len(s.token_ids) == len(s.logprobs)
        assert EOS not in s.token_ids[:-1]
        assert (s.token_ids[-1] == EOS) == (s.finish_reason == "stop")
        assert s.finish_reason == "stop" or len(s.token_ids) == params.max_tokens


def test_a_stop_string_ends_a_completion_and_stays_in_it(engine, tokenizer):
    prompts = ids_of(tokenizer, ["the quick brown fox a"]) * 100
    free = engine.sample(prompts, seeds(100), SamplingParams(max_tokens=40, temperature=0.7))
    texts = [tokenizer.decode(sampled.token_ids, skip_special_tokens=True) for sampled in free]
    pairs = Counter(a + b for text in texts for a, b in itertools.pairwise(text))
    (common_pair, count), *_ = pairs.most_common()
    (common_start, _), *_ = Counter(text[:1] for text in texts).most_common()
    assert count > 10
    # The last one is often complete with the first token, if the prompt's end is counted in.
    for stop in [(common_pair,), (common_pair, "q"), ("a" + common_start,)]:
        params = SamplingParams(max_tokens=40, temperature=0.7, stop=stop)
        for whole, cut in zip(free, engine.sample(prompts, seeds(100), params), strict=True):
            end = first_end(tokenizer, whole.token_ids, stop)
            assert cut.token_ids == whole.token_ids[:end]
            assert cut.finish_reason == ("stop" if end else whole.finish_reason)


def first_end(tokenizer, token_ids, stop):
    """Tokens up to the first whole stop string; None without one."""
    for length in range(1, len(token_ids) + 1):
        text = tokenizer.decode(token_ids[:length])
        if any(string in text for string in stop):
            return length
    return None


def test_loaded_weights_replace_the_old_ones(engine, model_a, model_b):
    before = engine.score(PROBE_IDS)
    assert before == pytest.approx(logprobs_of(read_model(model_a), PROBE_IDS), abs=1e-5)
    engine.load(model_b)
    after = engine.score(PROBE_IDS)
    assert after == pytest.approx(logprobs_of(read_model(model_b), PROBE_IDS), abs=1e-5)
    engine.load(model_a)
    assert engine.score(PROBE_IDS) == before


def test_weights_in_several_files_are_loaded(engine, model_b, tmp_path):
    read_model(model_b).save_pretrained(tmp_path, max_shard_size="100KB")
    assert not (tmp_path / "model.safetensors").exists()
    engine.load(tmp_path)
    expected = logprobs_of(read_model(model_b), PROBE_IDS)
    assert engine.score(PROBE_IDS) == pytest.approx(expected, abs=1e-5)


def test_weights_of_another_model_or_none_are_refused(engine, other_shape, tmp_path):
    with pytest.raises(EngineError):
        engine.load(other_shape)
    with pytest.raises(EngineError, match=str(tmp_path)):
        engine.load(tmp_path)


def test_a_missing_model_is_a_model_error(tokenizer, tmp_path):
    with pytest.raises(ModelError, match=str(tmp_path)):
        TransformersEngine(
            model_path=str(tmp_path),
            model=ModelConfig(),
            rollout=RolloutConfig(engine="transformers"),
            tokenizer=lambda: tokenizer,
        )


def test_stop_strings_that_transformers_cannot_watch_for_are_a_model_error(model_a):
    digits = build_tokenizer(NewModelConfig(alphabet="0123456789"))
    engine = TransformersEngine(
        model_path=str(model_a),
        model=ModelConfig(),
        rollout=RolloutConfig(engine="transformers"),
        tokenizer=lambda: digits,
    )
    with refused(ModelError, "('7',)", "rollout.stop"):
        engine.sample([[5]], [0], SamplingParams(max_tokens=2, stop=("7",)))


def test_bfloat16_and_a_shorter_context(model_a, tokenizer):
    engine = TransformersEngine(
        model_path=str(model_a),
        model=ModelConfig(dtype="bfloat16", max_model_len=100),
        rollout=RolloutConfig(engine="transformers"),
        tokenizer=lambda: tokenizer,
    )
    assert (engine.dtype, engine.max_model_len) == ("bfloat16", 100)
    expected = logprobs_of(read_model(model_a), PROBE_IDS)
    assert engine.score(PROBE_IDS) == pytest.approx(expected, abs=0.3)
