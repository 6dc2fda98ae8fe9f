import logging

from mortal_steps.environments.ledger import Answered, Ledger, history_of
from mortal_steps.environments.messages import ToolAnswer


def answered(tokens, content):
    answers = [ToolAnswer(name="add", content=content, seconds=0.5)]
    return Answered(history=history_of(7, [1, 2], tokens), episode="train-0/3", answers=answers)


def lines(folder):
    return [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]


def test_answers_that_were_recorded_are_found_by_another_process(tmp_path):
    first, second = answered([3], "total 6"), answered([3, 4], [{"type": "text", "text": "7"}])
    Ledger(tmp_path).note([first, second])
    found = Ledger(tmp_path)
    for each in (first, second):
        assert found.find(each.history) == each
    assert found.find(history_of(7, [1, 2], [4])) is None
    assert found.find(history_of(7, [1], [2, 3])) is None


def test_answers_that_are_known_are_not_recorded_again_and_others_in_their_place_are(
    tmp_path, caplog
):
    Ledger(tmp_path).note([answered([3], "total 6"), answered([4], "total 7")])
    again = Ledger(tmp_path)
    with caplog.at_level(logging.WARNING):
        again.note([answered([3], "total 6"), answered([4], "total 8")])
    assert len(lines(tmp_path)) == 3
    assert "'total 7'" in caplog.text and "'total 8'" in caplog.text
    (answer,) = Ledger(tmp_path).find(answered([4], "").history).answers
    assert answer.content == "total 8"


def test_a_line_that_a_kill_cut_short_is_no_answer(tmp_path):
    first, second = answered([3], "total 6"), answered([4], "total 7")
    Ledger(tmp_path).note([first, second])
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-3])
    found = Ledger(tmp_path)
    assert found.find(first.history) == first
    assert found.find(second.history) is None
