"""The ways in which clients ask."""

import httpx
import openai
import pytest

HI = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "and now?"}


def test_a_stream_says_the_same(play):
    played = play()
    played.says(played.calls(amount=3))
    options = {"tools": [played.tool], "stream_options": {"include_usage": True}}
    chunks = list(played.ask(HI, stream=True, **options))
    whole = played.ask(HI, tools=[played.tool])
    choices = [choice for chunk in chunks for choice in chunk.choices]
    (call,) = [call for each in choices for call in each.delta.tool_calls or ()]
    (other,) = whole.choices[0].message.tool_calls
    assert (call.id, call.function.name) == (other.id, other.function.name)
    assert call.function.arguments == other.function.arguments
    assert choices[-1].finish_reason == "tool_calls"
    assert chunks[-1].usage == whole.usage


def test_tokens_and_their_log_probabilities_are_told_if_asked(play):
    played = play().says("Hello there.")
    extra = {"return_token_ids": True}
    found = played.ask(HI, logprobs=True, extra_body=extra)
    told = found.model_dump()
    choice, turn = told["choices"][0], played.conversation.running.turns[0]
    assert told["prompt_token_ids"] == played.conversation.running.prompt_ids
    assert choice["token_ids"] == played.conversation.running.token_ids
    assert [each["logprob"] for each in choice["logprobs"]["content"]] == [-0.5] * turn.stop
    assert found.usage.completion_tokens == turn.stop


def test_texts_go_on_where_they_ended(play):
    played = play().says("Hello there.", "Late.", "Early.")
    complete = played.client.completions.create
    first = complete(model="any", prompt="It was once. ").choices[0].text
    assert first == "Hello there."
    before = played.kept
    complete(model="any", prompt=f"It was once. {first} And then? ")
    assert played.seen[1][: len(before)] == before
    assert played.conversation.num_branches == 0
    assert played.chat.text_of(played.seen[1][len(before) :]) == " And then? "
    complete(model="any", prompt="It was twice.")
    assert played.conversation.num_branches == 1


def generate(played, ids):
    address = played.base_url.removesuffix("/v1")
    body = {"token_ids": ids, "sampling_params": {"logprobs": 1}}
    return httpx.post(f"{address}/inference/v1/generate", json=body, timeout=60)


def test_tokens_are_compared_with_those_that_are_kept(play, chat):
    played = play().says("Hello there.", "Late.", "Early.")
    prompt = chat.prompt_ids([HI], ())
    (choice,) = generate(played, prompt).json()["choices"]
    assert [*prompt, *choice["token_ids"]] == played.kept
    assert choice["logprobs"]["content"][0]["token"] == f"token_id:{choice['token_ids'][0]}"
    more = [*played.kept, *chat.suffix_ids([MORE], played.kept[-1])]
    generate(played, more)
    assert played.seen[1] == more
    assert played.conversation.num_branches == 0
    generate(played, [*prompt, 5, 5])
    assert played.conversation.num_branches == 1
    unknown = generate(played, [*prompt, 10**6])
    assert (unknown.status_code, "no token 1000000" in unknown.text) == (400, True)


def test_an_episode_that_has_ended_is_not_found(play):
    played = play().says("Hello there.")
    other = openai.OpenAI(
        base_url=played.base_url.replace("/e/", "/e/0"), api_key="-", max_retries=0
    )
    with pytest.raises(openai.NotFoundError):
        other.chat.completions.create(model="any", messages=[HI])
    assert played.client.models.list().data[0].id == "policy"
