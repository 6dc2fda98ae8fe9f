"""Answers of a host as they travel."""

from mortal_steps.environments.inside.returned import answer_of
from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.hosts.answers import HostAnswer, decode_answer, encode_answer


def test_tables_in_a_tools_list_may_have_numbers_as_keys():
    answers = [answer_of("count", [{"type": "text", "text": "\ud83d", "by_length": {3: 2}}], 0.0)]
    sent = encode_answer(HostAnswer(number=1, value=answers))
    (found,) = decode_answer(sent, 1, list[ToolAnswer]).value
    assert found.content == [{"type": "text", "text": "\\ud83d", "by_length": {"3": 2}}]
