"""What `mortal chat` sends, and what it reads."""

import pytest

from mortal.cli.serving import chat
from mortal_steps.compute.modal.endpoint import WebEndpoint
from mortal_steps.errors import ConfigError, EngineError
from mortal_steps.serving.asking import (
    Manner,
    changed,
    headers_of,
    pieces,
    request_of,
    split_query,
)

ASKED = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "second"},
]


def test_a_conversation_begins_with_the_runs_own_system_prompt():
    manner = Manner(system="Be brief.", max_tokens=7, template_options={"enable_thinking": False})
    path, body = request_of(manner, "tiny", ASKED, temperature=0.5)
    assert path == "/chat/completions"
    assert body == {
        "model": "tiny",
        "temperature": 0.5,
        "stream": True,
        "max_tokens": 7,
        "chat_template_kwargs": {"enable_thinking": False},
        "messages": [{"role": "system", "content": "Be brief."}, *ASKED],
    }


def test_a_model_that_was_trained_on_texts_continues_the_last_one():
    path, body = request_of(Manner(chat=False, stop=("\n",)), "tiny", ASKED, temperature=0.0)
    assert path == "/completions"
    assert (body["prompt"], body["stop"]) == ("second", ["\n"])
    assert "messages" not in body


def test_what_the_user_says_wins_over_the_runs_manner():
    manner = Manner(chat=False, max_tokens=7)
    assert changed(manner, plain=None, max_tokens=None) == manner
    assert changed(manner, plain=False, max_tokens=9) == Manner(chat=True, max_tokens=9)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('data: {"choices": [{"delta": {"content": "ab"}}]}', ["ab"]),
        ('data: {"choices": [{"text": "c"}]}', ["c"]),
        ('data: {"choices": [{"delta": {"role": "assistant"}}]}', []),
        ('data: {"choices": [], "usage": {}}', []),
        ("data: [DONE]", []),
        ("", []),
    ],
)
def test_pieces_of_an_answer_are_read_from_the_stream(line, text):
    assert list(pieces(line)) == text


def test_a_server_that_fails_in_the_middle_is_no_end_of_an_answer():
    with pytest.raises(EngineError, match="out of memory"):
        list(pieces('data: {"error": "out of memory"}'))


def test_an_endpoint_on_modal_is_chosen_by_a_query_and_asks_for_a_token():
    place = WebEndpoint(url="https://x.modal.run/v1", query={"run_id": "a b", "step": "3"})
    assert split_query(place.of("")) == ("https://x.modal.run/v1", "run_id=a+b&step=3")
    assert place.of("/models") == "https://x.modal.run/v1/models?run_id=a+b&step=3"
    token = {"MODAL_PROXY_KEY": "wk-1", "MODAL_PROXY_SECRET": "ws-2"}
    assert headers_of(token) == {"Modal-Key": "wk-1", "Modal-Secret": "ws-2"}


def test_nobodys_key_is_sent_unless_it_is_meant_for_this():
    assert headers_of({"OPENAI_API_KEY": "sk-1", "MORTAL_SERVE_KEY": ""}) == {}
    assert headers_of({"MORTAL_SERVE_KEY": "k"}) == {"Authorization": "Bearer k"}


def test_an_empty_question_is_refused_before_a_server_is_started():
    with pytest.raises(ConfigError, match="the prompt ' ' is empty; write a question"):
        chat("nobody's run", prompt=" ")
