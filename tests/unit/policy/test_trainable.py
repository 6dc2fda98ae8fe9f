"""Turns, tokens and logprobs of a completion fit together, or it is not trained on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.errors import EngineError
from mortal_steps.policy.trainable import check_trainable
from mortal_steps.types import Completion, Episode, PolicyVersion, Turn


def completion(spans, logprobs):
    """Of as many tokens as logprobs, sampled in these spans."""
    return Completion(
        token_ids=list(range(len(logprobs))),
        logprobs=logprobs,
        text="",
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
        turns=[
            Turn(start=start, stop=stop, seed=0, finish_reason="stop", round=number)
            for number, (start, stop) in enumerate(spans)
        ],
    )


def check(made):
    check_trainable(made, origin="steps/000000/generations-0", problem_id="train-0")


@given(cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1), rest=st.just(2))
def test_the_mask_is_one_where_a_turn_is_and_nowhere_else(cuts, rest):
    spans, end = [], 0
    for gap, length in cuts:
        spans.append((end + gap, end + gap + length))
        end = spans[-1][1]
    sampled = {place for start, stop in spans for place in range(start, stop)}
    logprobs = [-0.5 if place in sampled else 0.0 for place in range(end + rest)]
    made = completion(spans, logprobs)
    check(made)
    assert made.loss_mask == [int(logprob < 0) for logprob in logprobs]
    assert sum(made.loss_mask) == sum(length for _, length in cuts) == made.num_sampled


def test_without_turns_everything_was_sampled():
    made = completion([], [-0.5, -0.25, 0.0])
    check(made)
    assert (made.loss_mask, made.num_sampled) == ([1, 1, 1], 3)


@pytest.mark.parametrize(
    ("spans", "logprobs", "wrong"),
    [
        ([(0, 2), (1, 3)], [-1.0] * 3, r"\[1, 3\).*\[2, 3\)"),
        ([(2, 3), (0, 1)], [0.0] * 3, r"\[0, 1\).*\[3, 3\)"),
        ([(0, 4)], [-1.0] * 3, r"\[0, 4\).*\[0, 3\)"),
        ([(-1, 2)], [-1.0] * 3, r"\[-1, 2\)"),
        ([(1, 1)], [0.0] * 3, r"\[1, 1\).*at least one token"),
        ([(1, 2)], [-0.5, -0.5, 0.0], r"tokens \[0, 1\)"),
        ([(0, 1), (2, 3)], [-0.5, -0.5, -0.5], r"tokens \[1, 2\)"),
        ([(0, 1)], [-0.5, 0.0, -0.5], r"tokens \[1, 3\)"),
    ],
    ids=["overlap", "order", "beyond", "before", "empty", "first", "between", "last"],
)
def test_turns_that_do_not_fit_are_named(spans, logprobs, wrong):
    with pytest.raises(EngineError, match=rf"generations-0: .* train-0 .*{wrong}"):
        check(completion(spans, logprobs))


@pytest.mark.parametrize("said", [1, 3])
def test_an_episode_says_a_message_in_each_turn(said):
    made = completion([(0, 2), (3, 4)], [-0.5, -0.5, 0.0, -0.5])
    answer = {"role": "tool", "name": "add", "content": "6"}
    messages = [*[{"role": "assistant", "content": "a"}] * said, answer]
    episode = replace(made, messages=messages, episode=Episode(stop="done"))
    with pytest.raises(EngineError, match=f"2 turns, in which {said} messages"):
        check(episode)
    check(replace(episode, episode=None))  # of somebody's own, who may say it otherwise
    check(replace(episode, messages=[messages[0], answer, messages[0]]))


@pytest.mark.parametrize("logprobs", [[], [-0.5]])
def test_tokens_need_a_logprob_each(logprobs):
    made = Completion(
        token_ids=[1, 2] if logprobs else [],
        logprobs=logprobs,
        text="",
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
    )
    with pytest.raises(EngineError, match="it needs as many, at least one"):
        check(made)
