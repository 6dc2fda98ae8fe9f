"""What an episode leaves behind that failed, or whose environment answered what is unreadable."""

import time
from dataclasses import replace

import pytest

from mortal_steps.environments.chat import Chat, TooLongError
from mortal_steps.environments.messages import ToolAnswer, ToolCall
from mortal_steps.environments.rounds import Running
from mortal_steps.environments.scoring import group_of
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.policy.algorithms.stepping.loop import columns
from mortal_steps.policy.trainable import check_trainable
from mortal_steps.rewards.scoring.episodes import episode_metrics
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.store.shard_columns import pack, unpack
from mortal_steps.types import (
    Episode,
    GeneratedShard,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    RolloutGroup,
)
from tests.support.environments.engine import Voice, called
from tests.support.environments.models import build_tokenizer

PROMPT = [{"role": "user", "content": "hi"}]
DONE = Episode(stop="done")


def chat_of(family):
    tokenizer = build_tokenizer(family)
    return Chat(tokenizer, settle_chat(tokenizer, family), {})


@pytest.fixture(scope="module")
def chat():
    return chat_of("qwen2_5")


def begun(chat, index=0, observed=""):
    problem = Problem(id="train-7", prompt=PROMPT)
    prompt = [{"role": "user", "content": "hi" + observed}] if observed else problem.prompt
    ids = chat.prompt_ids(prompt, [])
    return Running(
        problem=problem,
        key="train-7",
        index=index,
        seed=index,
        tools=[],
        prompt=prompt,
        prompt_ids=ids,
    )


def say(chat, episode, text):
    ids = chat.text_ids(text, begins=False)
    said = SampledTokens(token_ids=ids, logprobs=[-0.5] * len(ids), finish_reason="stop")
    episode.add_turn(said, len(episode.turns), 500, chat)
    return episode


def group(chat, episodes):
    made = group_of(episodes[0].problem, episodes, chat, PolicyVersion(0), [DONE] * len(episodes))
    for completion in made.completions:
        check_trainable(completion, origin="steps/000000/generations-0", problem_id="train-7")
    return made


@pytest.mark.parametrize(
    ("observed", "turns"),
    [("", 0), (" and so on" * 400, 0), ("", 2), (" and so on" * 400, 2)],
    ids=["reset", "long-reset", "later", "later-after-a-long-reset"],
)
def test_nothing_is_left_of_its_tokens_but_what_it_said_can_be_read(chat, observed, turns):
    voice = Voice("qwen2_5")
    kept, failed = begun(chat), begun(chat, 1, observed)
    say(chat, kept, voice.text("Hello there."))
    for _ in range(turns):
        say(chat, failed, voice.text("Hello there."))
    failed.fail("get_reward: raised ValueError")
    made = group(chat, [kept, failed])
    small = made.completions[1]
    assert small.token_ids == [chat.tokenizer.eos_token_id]
    assert small.logprobs == [0.0]
    assert small.prompt_ids is None, "that of the problem, as its siblings'"
    assert [message["content"] for message in small.messages] == ["Hello there."] * turns
    assert len(small.turns) == turns
    assert small.num_sampled == sum(small.loss_mask) == (0 if turns else 1)
    assert made.completions[0].num_sampled == len(kept.token_ids)


def test_its_siblings_have_the_rows_that_they_would_have_had(chat):
    def siblings(failure):
        episodes = [begun(chat, index, " and so on") for index in range(3)]
        for each in episodes:
            say(chat, each, Voice("qwen2_5").text("Hello there."))
        if failure:
            episodes[0].fail(failure)
        made = group(chat, episodes)
        return made.prompt_ids, made.completions[1:]

    assert siblings("tool add: away") == siblings(None)


def test_it_is_the_same_once_it_was_written(chat, tmp_path):
    failed = say(chat, begun(chat), Voice("qwen2_5").text("Hello there."))
    failed.fail("get_reward: raised ValueError")
    shard = GeneratedShard(
        step=0, shard=0, policy_version=PolicyVersion(0), groups=[group(chat, [failed])]
    )
    path = tmp_path / "generations-0.parquet"
    _, content = pack(path, shard, GeneratedShard)
    (read,) = unpack(path, bytes(content), GeneratedShard).groups
    assert read.completions[0].loss_mask == [0]
    assert episode_metrics(shard)["episodes/turns"] == 1


def batch_of(made):
    rollouts = [Rollout(completion=each, rewards={}, reward=None) for each in made.completions]
    of_problem = RolloutGroup(problem=made.problem, prompt_ids=made.prompt_ids, rollouts=rollouts)
    return RolloutBatch(step=3, policy_version=PolicyVersion(3), groups=[of_problem])


def test_one_that_an_earlier_version_kept_whole_is_trained_in_the_models_context(chat, caplog):
    kept = say(chat, begun(chat), Voice("qwen2_5").text("Hello there."))
    failed = [begun(chat, 1), begun(chat, 2)]
    for each in failed:
        each.fail("do not fit")
    made = group(chat, [kept, *failed])
    bad = Episode(stop="failed", failure="do not fit")
    whole = [
        replace(each, prompt_ids=[5] * length, token_ids=[7], logprobs=[0.0], episode=bad)
        for each, length in zip(made.completions[1:], (5003, 400), strict=True)
    ]
    batch = batch_of(replace(made, completions=[made.completions[0], *whole]))
    given = columns(batch, 256, None, context=512)
    assert list(map(len, given["prompt_ids"])) == [len(kept.prompt_ids), 1, 400]
    assert given["completion_ids"] == [kept.token_ids, [7], [7]]
    assert "failed with 5003 tokens" in caplog.text


def answered(chat, content, *, most=500):
    episode = say(chat, begun(chat), Voice("qwen2_5").calls(called("add", amount=1)))
    episode.calls = [ToolCall(name="add", arguments={}, call_id="train-7/0/0")]
    episode.add_answers([ToolAnswer(name="add", content=content)], chat, most, 4096)
    return episode


@pytest.mark.parametrize("content", [[1, 2], [0.5, float("nan")], [["a", 1]]])
def test_a_list_that_a_template_renders_is_the_models_to_read(content):
    chat = chat_of("llama3_1")
    episode = answered(chat, content)
    assert episode.failure is None
    assert "NaN" in chat.text_of(episode.token_ids) or content != [0.5, float("nan")]
    assert episode.messages[-1]["content"] == content


def test_a_list_that_a_template_cannot_render_fails_its_episode_alone(chat):
    template = "{{ '' + messages[-1]['content'] }}"
    chat = Chat(chat.tokenizer, settle_chat(chat.tokenizer, "qwen2_5"), {})
    chat._options["chat_template"] = template
    episode = answered(chat, [1, 2])
    assert episode.failure is not None
    assert "the chat template raises TypeError for an answer of 'add'" in episode.failure


def test_a_text_without_room_is_not_tokenized_whole(chat):
    text = "a log of what went on, line by line; " * 2_000_000
    began = time.process_time()
    episode = answered(chat, text)
    assert (episode.stop, len(episode.messages)) == ("length", 1)
    with pytest.raises(TooLongError):
        chat.prompt_ids([{"role": "user", "content": text}], [], 4096)
    with pytest.raises(TooLongError):
        chat.text_ids(text, begins=True, room=4096)
    assert time.process_time() - began < 5, "70 MB take minutes"


@pytest.mark.parametrize("count", [1, 300, 700, 5000])
def test_a_text_that_has_room_is_tokenized_as_ever(chat, count):
    messages = [{"role": "tool", "name": "add", "content": " and so on," * count}]
    ids = chat.suffix_ids(messages, 0)
    for room in (len(ids), len(ids) + 1, 2 * len(ids)):
        assert chat.suffix_ids(messages, 0, room) == ids
    if count == 5000:
        with pytest.raises(TooLongError, match="more than"):
            chat.suffix_ids(messages, 0, len(ids) // 20)
