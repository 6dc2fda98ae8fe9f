"""mortal_steps.rewards.judge.ledger: what is paid is known, and what is damaged is not."""

import json
import resource
import shutil
from pathlib import Path

import pytest

from mortal_steps.errors import StoreError
from mortal_steps.rewards.judge.ledger import ELSEWHERE, FOLDER, Ledger, Spending
from tests.support.judge_payments import payment


def found(run_dir: Path) -> dict[str, float | None]:
    ledger = Ledger(run_dir)
    ledger.refresh()
    return {name: known(ledger, name) for name in ("a", "b", "c")}


def known(ledger: Ledger, question: str) -> float | None:
    grade = ledger.find(question)
    return None if grade is None else grade.score


def only_file(run_dir: Path) -> Path:
    (path,) = (run_dir / FOLDER).iterdir()
    return path


def test_another_process_knows_what_was_paid_but_no_answer_without_a_score(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.pay(payment("a", 7.0))
    ledger.pay(payment("b", None))
    assert found(tmp_path) == {"a": 7.0, "b": None, "c": None}
    assert known(ledger, "a") == 7.0


def test_two_processes_learn_from_each_other_and_the_first_answer_stands(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path), Ledger(tmp_path)
    one.pay(payment("a", 1.0))
    other.refresh()
    assert known(other, "a") == 1.0
    other.pay(payment("b", 2.0))
    one.pay(payment("b", 3.0))
    one.refresh()
    assert known(one, "b") == 3.0
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_every_answer_counts_once_usable_or_not(tmp_path: Path) -> None:
    ledger, spending = Ledger(tmp_path), Spending(tmp_path)
    assert spending.so_far().dollars == 0
    ledger.pay(payment("a", 7.0, dollars=0.25))
    assert spending.so_far().dollars == 0.25
    ledger.pay(payment("b", None, dollars=0.5))
    spent = spending.so_far()
    assert (spent.answers, spent.prompt_tokens, spent.completion_tokens) == (2, 200, 40)
    assert spent.dollars == spending.so_far().dollars == 0.75


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_line_that_a_kill_has_cut_short_is_no_answer(tmp_path: Path, cut: int) -> None:
    ledger = Ledger(tmp_path)
    for name, score in (("a", 1.0), ("b", 2.0)):
        ledger.pay(payment(name, score))
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert found(tmp_path) == {"a": 1.0, "b": None, "c": None}


def test_what_is_paid_after_a_full_disk_is_known(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.pay(payment("a", 1.0))
    size = only_file(tmp_path).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, hard))
    try:
        with pytest.raises(StoreError):
            ledger.pay(payment("b", 2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    ledger.pay(payment("c", 3.0))
    assert found(tmp_path) == {"a": 1.0, "b": None, "c": 3.0}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"score": 2.0', '"score": 9.0'),
        ('"question": "b"', '"question": "c"'),
        ("{", "["),
        ("1", ""),
    ],
)
def test_an_altered_line_is_no_answer(tmp_path: Path, before: str, after: str) -> None:
    ledger = Ledger(tmp_path)
    for name, score in (("a", 1.0), ("b", 2.0)):
        ledger.pay(payment(name, score))
    path = only_file(tmp_path)
    first, second = path.read_text().splitlines(keepends=True)
    assert before in second
    path.write_text(first + second.replace(before, after, 1))
    assert found(tmp_path) == {"a": 1.0, "b": None, "c": None}


def test_without_a_run_answers_are_known_to_the_process_alone(tmp_path: Path) -> None:
    ledger = Ledger(None)
    ledger.pay(payment("a", 7.0))
    ledger.refresh()
    assert known(ledger, "a") == 7.0
    assert found(tmp_path)["a"] is None


def test_a_line_is_json_that_others_can_read(tmp_path: Path) -> None:
    Ledger(tmp_path).pay(payment("a", 7.0))
    assert json.loads(only_file(tmp_path).read_text())["score"] == 7.0


def test_what_is_paid_elsewhere_counts_once_however_often_it_is_told(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    Ledger(here).pay(payment("a", 1.0, dollars=0.5))
    shutil.copytree(here / FOLDER, there / FOLDER)  # a run that goes to Modal goes there whole
    away, spending, worker = Ledger(there), Spending(here), Spending(there)
    away.pay(payment("b", None, dollars=0.25))
    for _ in range(2):
        spending.learn(worker.by_file())
        assert spending.so_far().dollars == 0.75
    away.pay(payment("c", 1.0, dollars=1.0))
    spending.learn(worker.by_file())
    told = Spending(here).so_far()
    assert (told.answers, told.prompt_tokens, told.dollars) == (3, 300, 1.75)
    (here / FOLDER / ELSEWHERE).write_text("{")
    assert Spending(here).so_far().dollars == 0.5
    spending.learn(worker.by_file())
    assert Spending(here).so_far().dollars == 1.75
