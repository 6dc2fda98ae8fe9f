"""Prompts are counted as they are rendered."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
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
    backend.decoder = decoders.ByteLevel()
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


DATED = (
    "{% if messages[0]['role'] != 'system' %}{{ strftime_now('%d %b %Y') }}{% endif %}" + TEMPLATE
)
NEVER_PRINTED = "{% set day = strftime_now('%d %b %Y') %}" + TEMPLATE
SYSTEM = [{"role": "system", "content": "ab"}, *CHAT]


@pytest.mark.parametrize(
    ("template", "prompts", "dated"),
    [
        (DATED, [SYSTEM] * 5, False),
        (DATED, [*[SYSTEM] * 5, CHAT], True),
        (DATED, [*[SYSTEM] * 1200, CHAT, SYSTEM], True),
        (DATED, [SYSTEM, [{"role": "user", "content": 5}], CHAT], True),  # one that raises
        (NEVER_PRINTED, [CHAT] * 5, False),
        (TEMPLATE, [CHAT] * 5, False),
    ],
)
def test_todays_date_is_found_in_any_prompt(template, prompts, dated):
    tokenizer = byte_level()
    tokenizer.chat_template = template
    assert measure_prompts(prompts, tokenizer, {}, context=8).dated is dated


def with_special(template):
    """A tokenizer that adds special tokens to text."""
    tokenizer = byte_level()
    tokenizer.add_special_tokens({"bos_token": "<|begin|>"})
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<|begin|>", "<|end|>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=ids
    )
    return tokenizer


def test_prompts_that_end_with_the_end_of_a_completion_are_told():
    text = ["abc=", "d="]
    (said,) = measure_prompts(text, with_special("$A <|end|>"), {}, context=8).warnings
    assert said.startswith("2 of 2 prompts end with '<|end|>', the token that ends a completion")
    (said,) = measure_prompts(["ab", "c<|end|>"], byte_level(), {}, context=8).warnings
    assert said.startswith("1 of 2 prompts end with")
    assert measure_prompts([CHAT], byte_level(), {}, context=8).warnings == ()  # its template's
    assert measure_prompts(text, byte_level(), {}, context=8).warnings == ()


def test_texts_that_are_a_rendered_template_begin_twice():
    tokenizer = with_special("<|begin|> $A")
    (said,) = measure_prompts(["<|begin|>ab", "ab"], tokenizer, {}, context=8).warnings
    assert said.startswith("1 of 2 prompts begin with '<|begin|>' twice")
    assert "Give chat messages" in said


def test_the_first_prompt_is_shown_as_the_model_reads_it():
    found = measure_prompts([SYSTEM, CHAT], byte_level(), {}, context=8)
    assert found.first == "ab<|end|>ab<|end|>"
    assert measure_prompts(["ab"], with_special("<|begin|> $A"), {}, context=8).first == (
        "<|begin|>ab"
    )
