"""Logs are cut to what the manifest vouches for, and damage in them is noticed."""

import os

import pytest

from mortal_steps.runs.logs import (
    EMPTY,
    LOGS,
    METRICS,
    NOT_OF_EVERY_RUN,
    TIMINGS,
    RunLogs,
    read_lines,
)


@pytest.fixture
def logs(tmp_path):
    return RunLogs(tmp_path)


def test_what_was_appended_after_the_mark_is_cut_off(tmp_path, logs):
    logs.append(METRICS, {"step": 1}, {"step": 2})
    marks = logs.marks()
    logs.append(METRICS, {"step": 3})
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 4')
    assert logs.read(METRICS) == [{"step": 1}, {"step": 2}, {"step": 3}]
    again = RunLogs(tmp_path)
    assert again.cut(marks) == []
    assert again.marks() == marks
    again.append(METRICS, {"step": 3})
    assert RunLogs(tmp_path).marks() == again.marks()
    assert again.read(METRICS) == [{"step": 1}, {"step": 2}, {"step": 3}]


def test_a_log_that_is_not_what_its_mark_says_is_named(tmp_path, logs):
    logs.append(METRICS, {"step": 1}, {"step": 2})
    logs.append(TIMINGS, {"step": 1})
    marks = logs.marks()
    path = tmp_path / METRICS
    whole = path.read_bytes()
    for damaged in (b"?" + whole[1:], whole[:-1], b""):
        path.write_bytes(damaged)
        assert RunLogs(tmp_path).cut(marks) == [METRICS]
    path.unlink()
    assert RunLogs(tmp_path).cut(marks) == [METRICS]
    path.write_bytes(whole)
    assert RunLogs(tmp_path).cut(marks) == []


def test_without_any_mark_no_log_is_cut(tmp_path, logs):
    """So it is where the manifest is lost; a run of an earlier version lacks some marks alone."""
    for name in LOGS:
        logs.append(name, {"step": 1})
    marks = {name: mark for name, mark in logs.marks().items() if name not in NOT_OF_EVERY_RUN}
    before = {name: (tmp_path / name).read_bytes() for name in LOGS}
    assert set(RunLogs(tmp_path).cut({})) == set(LOGS)
    assert {name: (tmp_path / name).read_bytes() for name in LOGS} == before
    assert RunLogs(tmp_path).cut(marks) == []


def test_at_the_beginning_every_log_is_empty(tmp_path, logs):
    logs.append(METRICS, {"step": 1})
    assert logs.cut(dict.fromkeys(LOGS, EMPTY)) == []
    assert (tmp_path / METRICS).read_bytes() == b""


def test_going_back_leaves_out_later_lines(logs):
    logs.append(METRICS, *({"step": step} for step in range(5)))
    logs.keep_until(2)
    logs.append(METRICS, {"step": 3})
    assert [row["step"] for row in logs.read(METRICS)] == [0, 1, 2, 3]


def test_lines_that_cannot_be_read_are_left_out_and_named(tmp_path, caplog):
    path = tmp_path / METRICS
    path.write_bytes(b'{"step": 1}\n{"step": \xff}\n{"stfp": 3}\n[4]\n{"step": 5}\n{"step"')
    assert read_lines(path, needs=("step",)) == [{"step": 1}, {"step": 5}]
    assert [f"line {n} " in caplog.text for n in (1, 2, 3, 4, 5, 6)] == [0, 1, 1, 1, 0, 0]
    assert str(path) in caplog.text
    os.unlink(path)
    assert read_lines(path) == []
