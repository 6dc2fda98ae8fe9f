"""What follows the model's turn, as the templates of real families render it."""

import pytest

from mortal_steps.environments.chat import Chat
from mortal_steps.errors import DataError
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from tests.support.environments.models import FAMILIES, build_tokenizer

ASKED = [{"role": "user", "content": "hi"}]
GOES_ON = {"role": "user", "content": "and now?"}
STRIP_THINKING = {"qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "gptoss"}
"""Templates that leave out what the model thought once the user speaks again."""


def chat_of(name):
    tokenizer = build_tokenizer(name)
    return Chat(tokenizer, settle_chat(tokenizer, name), {})


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - STRIP_THINKING))
def test_a_users_message_follows_the_turn_as_if_all_were_rendered(name):
    chat, family = chat_of(name), FAMILIES[name]
    (ended_by,) = chat.tokenizer.convert_tokens_to_ids([(*family.ends, family.eos)[0]])
    suffix = chat.suffix_ids([GOES_ON], ended_by)
    whole = chat.prompt_ids([*ASKED, {"role": "assistant", "content": "dummy"}, GOES_ON], [])
    assert whole[-len(suffix) :] == suffix
    assert whole[-len(suffix) - 1] == ended_by
    assert "and now?" in chat.text_of(suffix)


@pytest.mark.parametrize("name", sorted(STRIP_THINKING))
def test_a_template_that_rewrites_the_turn_is_refused(name):
    chat = chat_of(name)
    with pytest.raises(DataError, match=r"in another way once a message of the user follows"):
        chat.suffix_ids([GOES_ON], chat.tokenizer.eos_token_id)
