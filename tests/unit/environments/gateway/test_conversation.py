"""What a client asks for is appended to what was sampled, or answered again, or a branch."""

import openai
import pytest

HI = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "and now?"}
HELLO = {"role": "assistant", "content": "Hello there."}


def test_only_what_is_new_is_appended(play):
    played = play().says("Hello there.", "Now it is late.")
    first = played.ask(HI).choices[0].message
    assert first.content == "Hello there."
    before = played.kept
    assert played.ask(HI, HELLO, MORE).choices[0].message.content == "Now it is late."
    assert played.seen[1][: len(before)] == before
    assert played.kept[: len(played.seen[1])] == played.seen[1]
    assert played.conversation.num_branches == 0
    said = [each["role"] for each in played.conversation.running.messages]
    assert said == ["assistant", "user", "assistant"]


CALLED = {"name": "add", "arguments": '{ "amount" : 3 }'}


@pytest.mark.parametrize(
    "sent_back",
    [
        {"content": None},
        {"content": "", "refusal": None, "audio": None},
        {"content": [{"type": "text", "text": ""}]},
        {"reasoning_content": "I thought of it."},
        {},
    ],
)
def test_what_clients_change_is_no_other_history(play, sent_back):
    played = play()
    played.says(played.calls(amount=3), "The total is 3.")
    call = played.ask(HI, tools=[played.tool]).choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("add", '{"amount": 3}')
    other = {"id": call.id, "type": "function", "function": CALLED}
    history = {"role": "assistant", "tool_calls": [other], **sent_back}
    answer = {"role": "tool", "tool_call_id": call.id, "content": "total 3"}
    blocks = [{"type": "text", "text": "hi"}]
    asked = [{"role": "user", "content": blocks}, history, answer]
    assert played.ask(*asked, tools=[played.tool]).choices[0].message.content == "The total is 3."
    assert played.conversation.num_branches == 0
    assert played.conversation.running.messages[1] == {
        "role": "tool",
        "name": "add",
        "content": "total 3",
    }


def test_what_was_answered_is_answered_again(play):
    played = play().says("Hello there.", "Now it is late.")
    first = played.ask(HI)
    second = played.ask(HI, HELLO, MORE)
    assert played.ask(HI) == first
    assert played.ask(HI, HELLO, MORE) == second
    assert len(played.seen) == 2


@pytest.mark.parametrize(
    "history",
    [
        ({**HI, "content": "hey"}, HELLO, MORE),
        (HI, {**HELLO, "content": "Go away."}, MORE),
        (HI, MORE),
        (HI, HELLO, MORE, HELLO, MORE),
    ],
)
def test_a_rewritten_history_is_a_branch_with_a_prompt_of_its_own(play, chat, history):
    played = play().says("Hello there.", "Again.", "And again.")
    played.ask(HI)
    assert played.ask(*history).choices[0].message.content == "Again."
    assert played.conversation.num_branches == 1
    assert played.seen[1] == chat.prompt_ids(history, ())
    last = {"role": "assistant", "content": "Again."}
    played.ask(*history, last, MORE)
    assert played.conversation.num_branches == 1


def test_other_tools_are_a_branch(play):
    played = play().says("Hello there.", "Again.")
    played.ask(HI, tools=[played.tool])
    played.ask(HI, HELLO, MORE)
    assert played.conversation.num_branches == 1


@pytest.mark.parametrize(
    ("limits", "stop"), [({"most_tokens": 40}, "length"), ({"most_turns": 1}, "max_iterations")]
)
def test_without_room_a_request_is_refused_by_a_code_that_clients_know(play, limits, stop):
    played = play(**limits).says("Hello there.")
    played.ask(HI)
    with pytest.raises(openai.BadRequestError) as refused:
        played.ask(HI, HELLO, {**MORE, "content": "and now? " * 20})
    assert refused.value.code == "context_length_exceeded"
    assert played.conversation.running.stop == stop
    assert "max_t" in played.session.refused


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n": 2}, "n = 2"),
        ({"messages": []}, "no list of messages"),
        ({"messages": [{**HELLO, "tool_calls": [{"id": "1"}]}]}, "no call of a function"),
    ],
)
def test_what_cannot_be_answered_is_refused(play, options, reason):
    played = play()
    with pytest.raises(openai.BadRequestError, match=reason):
        played.client.chat.completions.create(**{"model": "any", "messages": [HI], **options})


def test_pictures_are_refused(play):
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    with pytest.raises(openai.BadRequestError, match="text alone"):
        play().ask({"role": "user", "content": [picture]})
