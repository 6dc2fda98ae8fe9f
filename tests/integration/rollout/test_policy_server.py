"""The endpoint that a harness asks: each request is answered alone, and what none follows is
refused."""

import contextlib
import threading
from concurrent.futures import Future

import httpx
import openai
import pytest

from mortal_steps.harnesses.server import PolicyServer
from mortal_steps.rollout.http.server import HOST
from mortal_steps.rollout.prompts import render

BODY = {"model": "policy", "max_tokens": 5, "temperature": 1.0}


@contextlib.contextmanager
def serving(engine, tokenizer, seed=7):
    server = PolicyServer(
        engine,
        3,
        tokenizer,
        lambda prompt: render([prompt], tokenizer, {})[0],
        seed=seed,
        max_tokens=4,
        lowest_temperature=0.0,
    )
    ended = Future()
    thread = threading.Thread(target=server.answer_until, args=(ended, 60))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://{HOST}:{server.port}/v1", timeout=60) as client:
            yield client
    finally:
        ended.set_result(None)
        thread.join()
        server.close()


def texts(client, prompt, **body):
    answer = client.post("/completions", json={**BODY, "prompt": prompt, **body}).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return [choice["text"] for choice in answer["choices"]]


def test_the_same_requests_have_the_same_answers_in_any_order(engine, tokenizer):
    with serving(engine, tokenizer) as client:
        several, again, alone = texts(client, ["a=", "b="]), texts(client, ["a=", "b="]), []
        alone = texts(client, "c=")
        assert several != again, "asked again, it has other seeds"
    with serving(engine, tokenizer) as client:
        assert texts(client, "c=") == alone
        assert [texts(client, ["a=", "b="]) for _ in range(2)] == [several, again]
    with serving(engine, tokenizer, seed=8) as client:
        assert texts(client, ["a=", "b="]) != several


def test_several_prompts_in_tokens_and_several_answers_to_each(engine, tokenizer):
    ids = [tokenizer(text)["input_ids"] for text in ("a=", "b=")]
    with serving(engine, tokenizer) as client:
        assert texts(client, ids, seed=1) == texts(client, ["a=", "b="], seed=1)
        assert len(texts(client, ["a=", "b="], n=3)) == 6
        both = texts(client, ["a=", "a="], seed=4)
        assert both[0] != both[1], "no two completions have one seed"
        assert texts(client, ["a=", "a="], seed=4) == both


def test_an_answer_ends_before_its_stop_string_and_has_a_default_length(engine, tokenizer):
    with serving(engine, tokenizer) as client:
        body = {"model": "policy", "temperature": 0.0, "prompt": "a="}
        answer = client.post("/completions", json=body).json()
        assert answer["usage"]["completion_tokens"] <= 4
        (whole,) = texts(client, "a=", temperature=0.0)
        stop = whole[1:3]
        assert texts(client, "a=", temperature=0.0, stop=[stop]) == [whole[: whole.index(stop)]]


def test_a_long_prompt_takes_no_room_from_the_others(engine, tokenizer):
    long = "ab" * (engine.max_model_len // 2 - 1)
    ids = tokenizer(long)["input_ids"][: engine.max_model_len - 2]
    short = tokenizer("a=")["input_ids"]
    with serving(engine, tokenizer) as client:
        alone = texts(client, [short], seed=1, temperature=0.0)
        assert texts(client, [short, ids], seed=1, temperature=0.0)[0] == alone[0]
        assert client.post("/completions", json={**BODY, "prompt": [ids * 2]}).status_code == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("echo", True),
        ("response_format", {"type": "json_object"}),
        ("presence_penalty", 1),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ],
)
def test_what_no_answer_would_follow_is_refused(engine, tokenizer, field, value):
    with serving(engine, tokenizer) as client:
        answer = client.post("/completions", json={**BODY, "prompt": "a=", field: value})
        assert answer.status_code == 400
        assert f"`{field}`" in answer.json()["error"]["message"]


def test_openais_client_asks_for_completions(engine, tokenizer):
    with serving(engine, tokenizer) as client:
        made = openai.OpenAI(base_url=str(client.base_url), api_key="none")
        answer = made.completions.create(model="policy", prompt=["a=", "b="], max_tokens=2)
        assert len(answer.choices) == 2
        assert [each.id for each in made.models.list()] == ["policy"]
