"""What is recorded of tools' answers is read again."""

from mortal_steps.environments.ledger import Ledger, history_of
from mortal_steps.environments.messages import ToolAnswer


def test_answers_are_found_by_what_came_before_them(tmp_path):
    before = history_of(7, [1, 2], [3])
    answers = [ToolAnswer(name="add", content=[{"type": "text", "text": "7"}], seconds=0.5)]
    first = Ledger(tmp_path / "calls")
    first.note(before, "train-1/0", answers, {"total": 7})
    first.close()
    again = Ledger(tmp_path / "calls")
    found = again.find(before)
    assert found is not None
    assert (list(found.answers), found.state) == (answers, {"total": 7})
    assert again.find(history_of(7, [1], [2, 3])) is None
    assert again.find(history_of(8, [1, 2], [3])) is None


def test_another_answer_is_noticed_and_is_the_one_from_then_on(tmp_path, caplog):
    before, first = history_of(7, [1, 2], [3]), Ledger(tmp_path)
    first.note(before, "train-1/0", [ToolAnswer(name="add", content="7")])
    again = Ledger(tmp_path)
    again.note(before, "train-1/0", [ToolAnswer(name="add", content="7", seconds=3.0)])
    assert again.num_differences == 0
    again.note(before, "train-1/0", [ToolAnswer(name="add", content="8")])
    assert again.num_differences == 1
    assert "'7'" in caplog.text and "'8'" in caplog.text
    found = Ledger(tmp_path).find(before)
    assert found is not None and found.answers[0].content == "8"
