"""mortal_steps.rollout.episodes.single_turn: completions of chats become what TRL makes of them."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import chat_template_utils

from mortal_steps.rollout.episodes.single_turn import SingleTurn, parse_response
from mortal_steps.types import Problem

TEXTS = [
    "<think>\nthree plus four\n</think>\n\n7<|im_end|>",
    "7",
    "<think>\nnever ends",
    '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call><|im_end|>',
    '<tool_call>\n{"name": "add"}\n</tool_call>',
    '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"type":"function"</tool_call>',
]
PROMPT = "<|im_start|>user\n3+4<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def plain() -> Any:
    """One token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=whole, eos_token="<|im_end|>")


@pytest.fixture
def parsing(plain: Any) -> Any:
    """The same; it takes completions apart."""
    plain.response_template = chat_template_utils.qwen3_template
    return plain


@pytest.mark.parametrize("text", TEXTS)
def test_a_completion_is_the_message_that_trl_makes_of_it(parsing: Any, text: str) -> None:
    ids = parsing(text)["input_ids"]
    prompt_ids = parsing(PROMPT)["input_ids"]
    expected = chat_template_utils.parse_response(parsing, ids, prefix=prompt_ids, tools=None)
    assert parse_response(parsing, ids, prompt_ids) == expected


def test_reasoning_stands_apart_from_the_answer(parsing: Any) -> None:
    message = parse_response(parsing, parsing(TEXTS[0])["input_ids"], parsing(PROMPT)["input_ids"])
    assert (message["content"], message["reasoning_content"]) == ("7", "three plus four")


def test_what_no_record_can_hold_stays_text(parsing: Any) -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": "\\ud83d"}}\n</tool_call>'
    ids = parsing(text)["input_ids"]
    assert parse_response(parsing, ids, []) == {"role": "assistant", "content": text}


def test_only_chats_are_taken_apart(plain: Any) -> None:
    episodes = SingleTurn(tokenizer=plain, template_options={})
    ids, prompt_ids = plain("7")["input_ids"], plain(PROMPT)["input_ids"]
    chat = Problem(id="train-0", prompt=[{"role": "user", "content": "3+4"}])
    text = Problem(id="train-1", prompt="3+4")
    assert episodes.message_of(chat, prompt_ids, ids) is None
    plain.response_template = chat_template_utils.qwen3_template
    assert episodes.message_of(chat, prompt_ids, ids) == {"role": "assistant", "content": "7"}
    assert episodes.message_of(text, prompt_ids, ids) is None
