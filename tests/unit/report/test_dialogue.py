"""Completions for reading."""

import pytest

from mortal_steps.report.dialogue import completion_text, prompt_of
from mortal_steps.types import Completion, Episode, PolicyVersion, Problem

CALL = {
    "type": "function",
    "function": {"name": "add", "arguments": {"amount": 6, "what": "pears"}},
}
SAID = (
    {"role": "assistant", "content": "I add.\nAt once.", "tool_calls": [CALL, CALL]},
    {"role": "tool", "name": "add", "content": [{"type": "text", "text": "total 6"}]},
    {"role": "tool", "name": "add", "content": "total 12"},
    {"role": "assistant", "content": "12.", "reasoning_content": "Six and six."},
)


def completion(**fields):
    given = {"text": "raw", "episode": Episode(stop="done"), "messages": SAID, **fields}
    return Completion(
        token_ids=[1],
        logprobs=[0.0],
        finish_reason="stop",
        seed=1,
        policy_version=PolicyVersion(0),
        **given,
    )


def test_a_dialogue_tells_what_the_model_said_from_what_it_was_told():
    assert completion_text(completion()).splitlines() == [
        "model: I add.",
        "       At once.",
        "  calls add(amount=6, what='pears')",
        "  calls add(amount=6, what='pears')",
        "| add: total 6",
        "| add: total 12",
        "model, thinking: Six and six.",
        "model: 12.",
    ]
    assert completion_text(completion(episode=None)) == "raw"


def test_no_line_is_longer_than_a_terminal_and_long_answers_are_folded():
    call = {"function": {"name": "search", "arguments": {"query": "how tall " * 20}}}
    said = [
        {"role": "assistant", "content": "It is tall. " * 20, "tool_calls": [call]},
        {"role": "tool", "name": "search", "content": "330 metres\n" * 30},
        {"role": "assistant", "content": "| search: it is I, the model"},
    ]
    lines = completion_text(completion(messages=said)).splitlines()
    assert max(map(len, lines)) <= 64
    told = [line for line in lines if line.startswith("|")]
    assert (told[0], told[-1]) == ("| search: 330 metres", "| ... 22 more lines")
    assert len(told) == 9
    text = "".join(lines).replace(" ", "")
    assert text.count("howtall") == text.count("Itistall.") == 20, "the model's own words stay"


@pytest.mark.parametrize(
    ("stop", "failure", "last"),
    [
        ("failed", "tool add: no answer within 60 s", "no answer within 60 s"),
        ("length", None, "no room"),
        ("max_iterations", None, "not answered"),
    ],
)
def test_a_dialogue_says_why_it_ended(stop, failure, last):
    episode = Episode(stop=stop, failure=failure)
    assert last in completion_text(completion(episode=episode)).splitlines()[-1]


def test_a_dialogue_says_which_answer_changed():
    differs = "tool add: add(amount=6) gives another answer: 'total 5' before, 'total 6' now"
    assert differs in completion_text(completion(differing_answer=differs)).splitlines()[-1]


def test_an_observation_is_part_of_what_was_asked():
    problem = Problem(id="train-1", prompt=[{"role": "user", "content": "Add."}])
    assert prompt_of(problem, completion()) == problem.prompt
    own = ({"role": "user", "content": "Add. To 6."},)
    assert prompt_of(problem, completion(prompt=own)) == list(own)
