"""Calls in a file, for `mortal test-environment --calls`."""

import pytest

from mortal_steps.environments.trials.tried import GivenCall
from mortal_steps.errors import DataError
from mortal_steps.orchestration.trials.environment_trial import read_calls


def test_each_line_is_a_call(tmp_path):
    file = tmp_path / "calls.jsonl"
    file.write_text('{"name": "add", "arguments": {"amount": 1}}\n\n{"arguments": {}, "name": "b"}')
    added, other = read_calls(file)
    assert added == GivenCall(name="add", arguments={"amount": 1})
    assert (str(added), str(other)) == ("add(amount=1)", "b()")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"name": "add"}',
        '{"name": 1, "arguments": {}}',
        '{"name": "a", "arguments": []}',
        '{"name": "a", "arguments": {}, "more": 1}',
    ],
)
def test_a_line_that_is_no_call_is_named(tmp_path, line):
    file = tmp_path / "calls.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(DataError, match=r"calls\.jsonl, line 2"):
        read_calls(file)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.jsonl"):
        read_calls(tmp_path / "none.jsonl")
