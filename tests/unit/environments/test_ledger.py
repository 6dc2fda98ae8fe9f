import pytest

from mortal_steps.environments.ledger import Answered, Ledger, batch_of, history_of
from mortal_steps.environments.messages import ToolAnswer, ToolCall
from mortal_steps.rollout.engines.base import SampledTokens

WEIGHTS = "6ae2" * 16
CALLS = [ToolCall(name="add", arguments={"amount": 6}, call_id="train-0/3/0")]


def answered(tokens, content):
    answers = [ToolAnswer(name="add", content=content, seconds=0.5)]
    return Answered(history=history_of(7, [1, 2], tokens), episode="train-0/3", answers=answers)


def note(ledger, *answered):
    """Record them; return the differences."""
    return [each.difference for each in ledger.note([(each, CALLS) for each in answered])]


def lines(folder):
    return [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]


def test_answers_that_were_recorded_are_found_by_another_process(tmp_path):
    first, second = answered([3], "total 6"), answered([3, 4], [{"type": "text", "text": "7"}])
    note(Ledger(tmp_path, WEIGHTS), first, second)
    found = Ledger(tmp_path, WEIGHTS)
    for each in (first, second):
        assert found.find(each.history) == each
    assert found.find(history_of(7, [1, 2], [4])) is None
    assert found.find(history_of(7, [1], [2, 3])) is None


def test_known_answers_are_not_recorded_again_and_others_in_their_place_are(tmp_path):
    note(Ledger(tmp_path, WEIGHTS), answered([3], "total 6"), answered([4], "total 7"))
    same, other = note(
        Ledger(tmp_path, WEIGHTS), answered([3], "total 6"), answered([4], "total 8")
    )
    assert same is None
    for part in ("add(amount=6)", "'total 7'", "'total 8'"):
        assert part in other
    assert len(lines(tmp_path)) == 3
    (answer,) = Ledger(tmp_path, WEIGHTS).find(answered([4], "").history).answers
    assert answer.content == "total 8"


def test_a_difference_stays_known_when_the_new_answer_is_given_once_more(tmp_path):
    note(Ledger(tmp_path, WEIGHTS), answered([4], "total 7"))
    (found,) = note(Ledger(tmp_path, WEIGHTS), answered([4], "total 8"))
    assert note(Ledger(tmp_path, WEIGHTS), answered([4], "total 8")) == [found]


def test_what_is_shown_of_a_long_answer_is_where_it_differs(tmp_path):
    note(Ledger(tmp_path, WEIGHTS), answered([4], "-" * 5000 + "before" + "-" * 5000))
    (found,) = note(Ledger(tmp_path, WEIGHTS), answered([4], "-" * 5000 + "after" + "-" * 5000))
    assert "before-" in found and "after-" in found
    assert len(found) < 700


def test_a_line_that_a_kill_cut_short_is_no_answer(tmp_path):
    first, second = answered([3], "total 6"), answered([4], "total 7")
    note(Ledger(tmp_path, WEIGHTS), first, second)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-3])
    found = Ledger(tmp_path, WEIGHTS)
    assert found.find(first.history) == first
    assert found.find(second.history) is None


def sampled(*ids, reason="stop"):
    return SampledTokens(
        token_ids=list(ids), logprobs=[-1 / (3 + each) for each in ids], finish_reason=reason
    )


def test_a_recorded_round_is_not_sampled_again_and_the_same_to_the_bit(tmp_path):
    turns = [sampled(5, 70_000), sampled(2, reason="length"), sampled(9, 8, 7)]
    Ledger(tmp_path, WEIGHTS).sampled("a", lambda: turns)
    again = Ledger(tmp_path, WEIGHTS)
    assert again.sampled("a", lambda: pytest.fail("it was sampled again")) == turns
    other = [sampled(1)]
    assert again.sampled("b", lambda: other) == other
    assert Ledger(tmp_path, "77" * 32).sampled("a", lambda: other) == other, "of other weights"


def test_a_batch_is_its_episodes_in_their_order_and_what_they_are_sampled_with():
    batches = [
        batch_of(["x", "y"], 0, "params"),
        batch_of(["y", "x"], 0, "params"),
        batch_of(["x"], 0, "params"),
        batch_of(["x", "y"], 1, "params"),
        batch_of(["x", "y"], 0, "others"),
    ]
    assert len(set(batches)) == 5
    assert batch_of(iter(["x", "y"]), 0, "params") == batches[0]
