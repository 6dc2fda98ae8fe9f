"""A prompt that is computed once for its group leads to the same tokens, and repeats itself."""

from collections import Counter

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma3TextConfig,
    MambaConfig,
    MistralConfig,
    Qwen3NextConfig,
    RwkvConfig,
)

from mortal_steps.config import ModelConfig, NewModelConfig, RolloutConfig
from mortal_steps.config.rollout import TOLERANCE
from mortal_steps.errors import EngineError
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.types import SamplingParams

PARAMS = SamplingParams(max_tokens=12, temperature=1.0)
A, B, C = [5, 6, 7, 30, 12, 9, 41, 8], [5, 6, 7], [11, 40, 22, 9, 17]
GROUPS = [A] * 4 + [B] * 4 + [C] * 4
SHAPE = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
SHAPE |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4}
SHORT = {**SHAPE, "sliding_window": 4}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "full_attention_interval": 2}
LINEAR |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "moe_intermediate_size": 32}
LINEAR |= {"num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32}
SHARE = {
    "sliding-window": (MistralConfig, SHORT),
    "some-layers-slide": (Gemma3TextConfig, {**SHORT, "sliding_window_pattern": 2}),
    "biased": (BloomConfig, {"hidden_size": 32, "n_head": 2, "n_layer": 2}),
}
MAY_BE_REFUSED = {
    "hybrid": (Qwen3NextConfig, {**SHAPE, **LINEAR}),
    "recurrent": (MambaConfig, {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}),
    "without-cache": (RwkvConfig, {"hidden_size": 32, "num_hidden_layers": 2}),
}


@pytest.fixture
def sharing(model_a, tokenizer):
    return engine_of(model_a, tokenizer, share_prefill=True)


def engine_of(folder, tokenizer, **rollout):
    return TransformersEngine(
        model_path=str(folder),
        model=ModelConfig(),
        rollout=RolloutConfig(**rollout),
        tokenizer=lambda: tokenizer,
    )


def sampled(engine, prompts=GROUPS):
    found = engine.sample(prompts, range(len(prompts)), PARAMS)
    return [(list(each.token_ids), list(each.logprobs)) for each in found]


def are_near(engine, others):
    """Completions of the same seeds are the same, but for last bits of their logprobs."""
    for (tokens, logprobs), (other_tokens, other_logprobs) in zip(
        sampled(engine), others, strict=True
    ):
        assert tokens == other_tokens
        assert logprobs == pytest.approx(other_logprobs, abs=TOLERANCE)


def test_tokens_are_those_of_prompts_computed_for_each_completion(engine, sharing):
    are_near(sharing, sampled(engine))


def test_each_prompt_is_computed_once(sharing, monkeypatch):
    sampled(sharing)  # tried
    lengths = []
    embed = sharing._model.get_input_embeddings()
    hook = embed.register_forward_hook(lambda module, args, out: lengths.append(args[0].shape))
    sampled(sharing)
    hook.remove()
    assert lengths[0] == (3, len(A))
    assert set(lengths[1:]) == {(len(GROUPS), 1)}
    assert not sharing._model._forward_hooks and not sharing._model._forward_pre_hooks


def test_a_shard_is_the_same_to_the_bit_in_any_worker(sharing, model_a, tokenizer):
    first = sampled(sharing)
    sampled(sharing, [C, C, A])  # another shard in between
    assert sampled(sharing) == first
    assert sampled(engine_of(model_a, tokenizer, share_prefill=True)) == first


def test_prompts_need_not_lie_together(engine, sharing):
    mixed = [A, B, A, C, B, A, [4, 4]]
    together = sampled(engine, mixed)
    for one, other in zip(sampled(sharing, mixed), together, strict=True):
        assert one[0] == other[0]
    assert Counter(map(len, mixed))[len(A)] == 3


def build(folder, kind, shape, tokenizer):
    torch.manual_seed(0)
    ends = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    config = kind(vocab_size=len(tokenizer), **ends, **shape)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)


@pytest.mark.parametrize("family", SHARE)
def test_families_with_other_caches_share_rightly(tmp_path, family):
    tokenizer = build_tokenizer(NewModelConfig())
    build(tmp_path, *SHARE[family], tokenizer)
    alone = sampled(engine_of(tmp_path, tokenizer))
    are_near(engine_of(tmp_path, tokenizer, share_prefill=True), alone)


@pytest.mark.parametrize("family", MAY_BE_REFUSED)
def test_others_share_rightly_or_are_refused(tmp_path, family):
    tokenizer = build_tokenizer(NewModelConfig())
    build(tmp_path, *MAY_BE_REFUSED[family], tokenizer)
    prompts = [A, A, A]
    alone = sampled(engine_of(tmp_path, tokenizer), prompts)
    shares = engine_of(tmp_path, tokenizer, share_prefill=True)
    try:
        found = sampled(shares, prompts)
    except EngineError as error:
        assert "rollout.share_prefill = true" in str(error)
    else:
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in alone]


def test_a_cache_that_keeps_more_of_a_row_is_noticed(sharing, monkeypatch):
    """One that is repeated wrongly: each row gets what the first one has."""
    from transformers import Cache

    repeat = Cache.batch_select_indices
    monkeypatch.setattr(Cache, "batch_select_indices", lambda cache, rows: repeat(cache, rows * 0))
    with pytest.raises(EngineError, match="log-probabilities differ by"):
        sampled(sharing)
