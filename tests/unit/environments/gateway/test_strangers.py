"""Whoever finds the port of a gateway without an episode's address, and requests of no form."""

import socket
import threading
import time

import httpx
import openai
import pytest

from mortal_steps.rollout.http import server as serving
from tests.support.refused import refused

HI = {"role": "user", "content": "hi"}
MIB = 2**20


def post(played, path, content):
    return httpx.post(played.base_url + path, content=content, timeout=60)


def strange(played):
    """Return the address of an episode that is none."""
    return played.base_url.replace("/e/", "/e/0")


def test_a_stranger_is_turned_away_before_a_body_is_read(play):
    played = play()
    host, port = httpx.URL(played.base_url).host, httpx.URL(played.base_url).port
    with socket.create_connection((host, port), timeout=20) as stranger:
        stranger.sendall(
            b"POST /e/0/v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: 400000000\r\n\r\n{"
        )
        assert b"404" in stranger.recv(100)


def test_a_stranger_is_not_told_of_models(play):
    played = play()
    assert httpx.get(f"{strange(played)}/models").status_code == 404
    assert httpx.get(f"{played.base_url}/models").status_code == 200


def test_a_request_has_a_limit(play, monkeypatch):
    monkeypatch.setattr(serving, "LARGEST_BODY", MIB)
    found = post(play(), "/chat/completions", b" " * (MIB + 1))
    assert (found.status_code, "more than 1 MiB" in found.text) == (413, True)


def test_a_connection_that_begins_no_request_is_given_up(play, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    played = play()
    url = httpx.URL(played.base_url)
    began = time.monotonic()
    with socket.create_connection((url.host, url.port), timeout=20) as late:
        late.sendall(b"POST /e/0/v1/chat/completions HTTP/1.1\r\nHost")
        assert late.recv(100) == b""
    assert time.monotonic() - began < 20


def test_an_answer_may_take_longer_than_a_head(play, monkeypatch):
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    played = play().says("Hello there.")
    played.may_say.clear()
    threading.Timer(1.0, played.may_say.set).start()
    assert played.ask(HI).choices[0].message.content == "Hello there."


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("[" * 100_000, "no JSON"),
        ('{"messages": 5}', "no list of messages"),
        ('{"messages": [{"role": "user"}], "tools": 5}', "no list of tools"),
        ('{"messages": [{"role": "user"}], "tools": [5]}', "no list of tools"),
        ('{"messages": [{"role": "user"}], "stream": true, "stream_options": 5}', "no object"),
        ('{"messages": [{"role": "tool", "name": 5}]}', "is no text"),
    ],
)
def test_a_request_of_another_form_is_refused_and_may_be_made_again(play, body, told):
    played = play().says("Hello there.")
    found = post(played, "/chat/completions", body)
    assert (found.status_code, told in found.text) == (400, True)
    assert played.session.fault is None
    assert played.ask(HI).choices[0].message.content == "Hello there."


def test_true_is_no_token(play):
    found = post(play(), "/completions", '{"prompt": [true, 5]}')
    assert (found.status_code, "neither text nor a list" in found.text) == (400, True)


@pytest.mark.parametrize(
    ("wish", "matters"),
    [
        ({"logit_bias": {"5": -100}}, True),
        ({"allowed_token_ids": [5]}, True),
        ({"add_generation_prompt": False}, True),
        ({"top_logprobs": 5}, True),
        ({"logit_bias": {}, "tool_choice": "auto", "add_generation_prompt": True}, False),
        ({"echo": False, "min_tokens": 0, "bad_words": [], "stop": None}, False),
    ],
)
def test_what_answers_are_not_bound_to_is_told(play, server, caplog, wish, matters):
    server._warned.clear()
    play().says("Hello there.").ask(HI, extra_body=wish)
    told = [each for each in caplog.messages if next(iter(wish)) in each]
    assert len(told) == int(matters)


def test_a_role_that_is_none_is_told(play, caplog):
    play().says("Hello there.").ask(HI, {"role": "banana", "content": "yellow"})
    assert "'banana', which OpenAI's protocol does not know" in caplog.text


def test_options_of_the_template_that_are_not_the_runs_are_refused(play, chat, monkeypatch):
    played = play().says("Hello there.")
    other = {"chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(openai.BadRequestError, match=r"set training\.trl\.chat_template_kwargs"):
        played.ask(HI, extra_body=other)
    monkeypatch.setitem(chat._options, "enable_thinking", False)
    assert played.ask(HI, extra_body=other).choices[0].message.content == "Hello there."


def test_a_message_without_room_is_not_tokenized_whole(play):
    played = play().says("Hello there.")
    played.ask(HI)
    log = {"role": "user", "content": "a log of what went on, line by line; " * 1_000_000}
    began = time.process_time()
    with pytest.raises(openai.BadRequestError, match="no room for more"):
        played.ask(HI, {"role": "assistant", "content": "Hello there."}, log)
    with refused(openai.BadRequestError, "3696 tokens"):
        played.ask(log)
    assert time.process_time() - began < 10, "37 MB take minutes"
    assert played.session.fault is None
