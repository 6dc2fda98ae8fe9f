"""Records that are appended line by line."""

import json
from dataclasses import dataclass

import pytest

from mortal_steps.errors import StoreError
from mortal_steps.store.line_files import LineFiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Paid:
    question: str
    score: float | None


def records(folder):
    return [record for _, record in LineFiles(folder, Paid).new()]


def test_what_was_added_is_read_by_others_once(tmp_path):
    ours, theirs = (LineFiles(tmp_path / "paid", Paid, sync=sync) for sync in (True, False))
    reader = LineFiles(tmp_path / "paid", Paid)
    assert list(reader.new()) == []
    ours.add(Paid(question="a", score=0.1))
    theirs.add(Paid(question="b", score=None))
    assert {record.question for _, record in reader.new()} == {"a", "b"}
    ours.add(Paid(question="c", score=1e-300))
    assert [record for _, record in reader.new()] == [Paid(question="c", score=1e-300)]
    ours.close()
    ours.add(Paid(question="d", score=0.0))
    assert len(list((tmp_path / "paid").iterdir())) == 3


def test_lines_that_were_cut_or_altered_do_not_count(tmp_path):
    lines = LineFiles(tmp_path, Paid)
    for question in "abc":
        lines.add(Paid(question=question, score=2.0))
    (path,) = tmp_path.iterdir()
    first, second, third = path.read_bytes().splitlines(keepends=True)
    changed = json.dumps({**json.loads(second), "score": 3.0}).encode() + b"\n"
    path.write_bytes(first + changed + b"no JSON\n[]\n" + third[:-5])
    assert records(tmp_path) == [Paid(question="a", score=2.0)]


def test_a_disk_that_refuses_is_a_store_error(tmp_path):
    (tmp_path / "paid").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="paid"):
        LineFiles(tmp_path / "paid", Paid).add(Paid(question="a", score=1.0))
