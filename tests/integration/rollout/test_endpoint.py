"""The policy over HTTP, as environments outside of the run sample from it."""

import asyncio
import socket

import httpx
import openai
import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.rollout.http.endpoint import Endpoint
from mortal_steps.rollout.http.server import HOST
from mortal_steps.rollout.prompts import render
from mortal_steps.types import SamplingParams
from tests.support.rollout.reference import completion_logprobs
from tests.support.rollout.tiny_model import read_model

PROMPT = "12abc=>"


def free_port():
    with socket.create_server((HOST, 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
def endpoint(engine, tokenizer):
    made = Endpoint(
        engine, tokenizer, lambda prompt: render([prompt], tokenizer, {})[0], [free_port()]
    )
    made.holding(3)
    return made


@pytest.fixture
def client(endpoint):
    with httpx.Client(base_url=f"http://{HOST}:{endpoint.port}", timeout=60) as client:
        yield client


def test_what_was_sampled_comes_with_the_logprobs_that_the_model_gives(client, engine, tokenizer):
    ids = tokenizer(PROMPT)["input_ids"]
    body = {"prompt": {"prompt_token_ids": ids}, "n": 3, "max_tokens": 5, "logprobs": 0}
    found = client.post("/generate", json=body).json()
    assert found["prompt_token_ids"] == ids
    assert found["weight_version"] == 3
    assert len(found["token_ids"]) == len(found["finish_reasons"]) == 3
    assert len({tuple(each) for each in found["token_ids"]}) > 1
    for tokens, text, logprobs in zip(
        found["token_ids"], found["text"], found["logprobs"], strict=True
    ):
        pairs = [(int(token), lp) for ((token, lp),) in (each[0].items() for each in logprobs)]
        assert [token for token, _ in pairs] == tokens
        scored = engine.score([*ids, *tokens])[len(ids) - 1 :]
        assert [lp for _, lp in pairs] == pytest.approx(scored, abs=1e-4)
        assert tokenizer.decode(tokens, skip_special_tokens=True) == text


def test_filters_leave_the_logprobs_over_the_whole_vocabulary(client, model_a, tokenizer):
    """At the request's temperature, at which an environment's trainer computes them again."""
    ids = tokenizer(PROMPT)["input_ids"]
    asked = {"max_tokens": 5, "temperature": 0.7, "top_p": 0.5, "top_k": 9, "min_p": 0.05}
    body = {"prompt": {"prompt_token_ids": ids}, "logprobs": 0, **asked}
    found = client.post("/generate", json=body).json()
    (tokens,), (logprobs,) = found["token_ids"], found["logprobs"]
    given = [logprob for each in logprobs for logprob in each[0].values()]
    params = SamplingParams(**asked)
    expected = completion_logprobs(read_model(model_a), ids, tokens, params)
    assert given == pytest.approx(expected, abs=1e-4)


def test_a_temperature_that_the_engine_would_raise_is_refused(engine, tokenizer):
    port = free_port()
    made = Endpoint(engine, tokenizer, lambda prompt: [5], [port], lowest_temperature=0.01)
    made.holding(3)
    with httpx.Client(base_url=f"http://{HOST}:{made.port}", timeout=60) as client:
        for temperature, status in ((0.005, 400), (0, 200), (0.01, 200)):
            body = {"prompt": [5], "max_tokens": 1, "temperature": temperature}
            assert client.post("/generate", json=body).status_code == status


def test_a_seed_gives_the_same_and_a_text_is_tokenized(client, tokenizer):
    ids = tokenizer(PROMPT)["input_ids"]
    body = {"n": 2, "max_tokens": 5, "seed": 11, "temperature": 0.7}
    texts = [
        client.post("/generate", json={**body, "prompt": prompt}).json()["text"]
        for prompt in ({"prompt_token_ids": ids}, PROMPT, PROMPT)
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_text_ends_before_its_stop_string_as_vllms_does(client):
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8}
    (whole,) = client.post("/generate", json=body).json()["text"]
    stop = whole[2:4]
    found = client.post("/generate", json={**body, "stop": [stop]}).json()
    kept = {**body, "stop": [stop], "include_stop_str_in_output": True}
    with_it = client.post("/generate", json=kept).json()
    before = whole[: whole.index(stop)]
    assert (found["text"], with_it["text"]) == ([before], [before + stop])
    assert found["token_ids"] == with_it["token_ids"], "what was sampled is the same"


def test_an_openai_client_is_answered(endpoint, tokenizer):
    asked = openai.OpenAI(base_url=f"http://{HOST}:{endpoint.port}/v1", api_key="none")
    said = asked.completions.create(model="policy", prompt=PROMPT, n=2, max_tokens=4)
    assert len(said.choices) == 2
    assert said.usage.prompt_tokens == len(tokenizer(PROMPT)["input_ids"])
    messages = [{"role": "user", "content": "abc"}]
    chat = asked.chat.completions.create(model="policy", messages=messages, max_tokens=4, n=3)
    assert [choice.message.role for choice in chat.choices] == ["assistant"] * 3
    assert {choice.finish_reason for choice in chat.choices} <= {"stop", "length"}


def test_many_requests_at_once_are_all_answered(endpoint):
    async def ask_all():
        base = f"http://{HOST}:{endpoint.port}"
        async with httpx.AsyncClient(base_url=base, timeout=60) as client:
            bodies = [
                {"prompt": PROMPT, "n": 2, "max_tokens": 3, "temperature": 1.0 + number % 2}
                for number in range(30)
            ]
            return await asyncio.gather(*[client.post("/generate", json=body) for body in bodies])

    answers = asyncio.run(ask_all())
    assert [len(answer.json()["token_ids"]) for answer in answers] == [2] * 30


def test_nothing_is_sampled_while_weights_are_not_proven(client, endpoint):
    assert client.get("/health").status_code == 200
    with endpoint.loading():
        assert client.get("/health").status_code == 503
        asked = client.post("/v1/completions", json={"prompt": PROMPT}, timeout=60)
        assert asked.status_code == 503, "the answer does not wait for the weights"
    refused = client.post("/generate", json={"prompt": PROMPT, "max_tokens": 2})
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert "being loaded" in refused.json()["error"]["message"]
    endpoint.holding(4)
    found = client.post("/generate", json={"prompt": PROMPT, "max_tokens": 2}).json()
    assert found["weight_version"] == client.get("/bridge/info").json()["weight_version"] == 4


@pytest.mark.parametrize(
    "path, body, said",
    [
        ("/generate", {"prompt": [], "max_tokens": 2}, "neither text nor a list of token ids"),
        ("/generate", {"prompt": [5] * 4096}, "fills the model's context"),
        ("/generate", {"prompt": [5], "prompt_logprobs": 1}, "not computed here"),
        ("/v1/chat/completions", {"messages": "hello"}, "no list of messages"),
        ("/generate", {"prompt": [5, 100_000]}, "no token 100000: its tokens are 0 to"),
        ("/generate", {"prompt": [-1]}, "no token -1:"),
        ("/generate", {"prompt": [5], "n": 0}, "`n` is 0, and has to be a whole number from 1 to"),
        ("/generate", {"prompt": [5], "n": 100_000}, "`n` is 100000, "),
        ("/v1/completions", {"prompt": [5], "n": "2"}, "`n` is '2', "),
        ("/generate", {"prompt": [5], "max_tokens": -3}, "`max_tokens` is -3, "),
        ("/generate", {"prompt": [5], "temperature": -0.1}, "`temperature` is -0.1, "),
        ("/generate", {"prompt": [5], "seed": 2**80}, "`seed` is 1208925819614629174706176, "),
        ("/generate", {"prompt": [5], "stop": [3]}, "`stop` is neither a text"),
        ("/generate", {"prompt": [5], "ignore_eos": True}, "`ignore_eos` is True, which is not"),
        ("/v1/completions", {"prompt": [5], "frequency_penalty": 0.5}, "which is not done here"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]},
            "`tools` is [{'type': 'function'}], which is not done here",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(client, path, body, said):
    refused = client.post(path, json=body)
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]


def test_a_port_that_is_taken_is_told_of(endpoint, engine, tokenizer):
    with pytest.raises(ConfigError, match=rf"port = {endpoint.port}: .*choose another one"):
        Endpoint(engine, tokenizer, lambda prompt: [5], [endpoint.port])


def test_a_stream_says_the_same_and_log_probabilities_are_told(endpoint):
    asked = openai.OpenAI(base_url=f"http://{HOST}:{endpoint.port}/v1", api_key="none")
    options = {"model": "policy", "max_tokens": 4, "seed": 11, "n": 2}
    messages = [{"role": "user", "content": "abc"}]
    whole = asked.chat.completions.create(messages=messages, logprobs=True, **options)
    said = ["", ""]
    for chunk in asked.chat.completions.create(messages=messages, stream=True, **options):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == [choice.message.content for choice in whole.choices]
    told = [len(choice.logprobs.content) for choice in whole.choices]
    assert sum(told) == whole.usage.completion_tokens
