"""Prompts are counted as they are rendered."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.policy.starting_model.prompt_lengths import measure_prompts
from mortal_steps.rollout.prompts import tokenize_prompts
from mortal_steps.types import Problem

CHAT = [{"role": "user", "content": "ab"}]
PROMPTS = ["abc=", CHAT, "", [{"role": "user", "content": 5}], "ä\n"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"


def byte_level():
    """Byte-level BPE as Llama's and Qwen's: 256 bytes, two merges, one special token."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "aba"]
    merges = [("a", "b"), ("ab", "a")]
    backend = Tokenizer(models.BPE({token: row for row, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")
    made.chat_template = TEMPLATE
    return made


TOKENIZERS = {"characters": build_tokenizer(NewModelConfig()), "bytes": byte_level()}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_prompts_are_measured_as_they_are_rendered(tokenizer):
    for some in (PROMPTS, PROMPTS[::2], PROMPTS[1:2], [*PROMPTS[:1] * 1500, CHAT]):
        found = measure_prompts(some, tokenizer, {}, context=8)
        usable = [row for row in range(len(some)) if row not in found.unusable]
        rows = [Problem(id=str(row), prompt=some[row]) for row in usable]
        rendered = tokenize_prompts(rows, tokenizer, {})
        for row, ids in zip(usable, rendered, strict=True):
            assert found.tokens[row] == len(ids)
        assert found.longest == max(map(len, rendered))


def test_prompts_without_tokens_and_templates_that_raise_are_told_apart():
    found = measure_prompts(PROMPTS, TOKENIZERS["characters"], {}, context=8)
    assert found.unusable[2] == "it has no tokens"
    assert found.unusable[3].startswith("the chat template raises TypeError")
    assert len(found.unusable) == 2
