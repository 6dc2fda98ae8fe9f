"""What every command prints: help, names as they are, errors."""

import contextlib
import json
import logging
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mortal.cli.on_demand import TARGETS
from mortal.driver import is_news
from mortal.terminal.output import MOST_LINES, shortened
from mortal_steps.report.printable import printable
from mortal_steps.runs.lease import LeaseRecord, acquire
from tests.support.begun_runs import make_run
from tests.support.project import write_project

RED = "\x1b[31m"


@pytest.mark.parametrize("command", list(TARGETS))
def test_on_a_narrow_terminal_the_help_names_each_option_in_full(mortal, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = mortal(command, "--help")
    assert code == 0 and "--help" in output
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_a_run_that_cannot_be_read_hides_no_other(mortal, tmp_path, caplog):
    make_run(tmp_path, "one")
    (tmp_path / "theirs" / "run.json").mkdir(parents=True)
    code, output, _ = mortal("runs", "--runs-dir", tmp_path)
    assert code == 0 and "one" in output
    assert "theirs" in caplog.text and "cannot be read" in caplog.text
    code, _, errors = mortal("show", "theirs", "--runs-dir", tmp_path)
    assert code == 1 and errors.startswith("error: ") and "theirs" in errors


@pytest.mark.parametrize("name", ["exp[lr=1e-5]", "[", "x[", ":smile:", f"{RED}red", "\udcff"])
def test_a_folder_is_shown_by_its_very_name(mortal, tmp_path, name):
    folder = tmp_path / name
    make_run(folder, "one")
    code, output, _ = mortal("show", "one", "--runs-dir", folder)
    assert code == 0
    assert f"files        {printable(str(folder))}/one\n" in output
    assert "\x1b" not in output


def test_a_closing_tag_in_a_path_is_a_path(mortal, tmp_path):
    code, _, errors = mortal("show", "one", "--runs-dir", tmp_path / "[" / "b]")
    assert code == 1 and "/[/b] (runs there: none)" in errors
    make_run(tmp_path / "[" / "b]", "one")
    code, output, _ = mortal("show", "one", "--runs-dir", tmp_path / "[" / "b]")
    assert code == 0 and "/[/b]/one" in output


def test_an_error_moves_no_cursor(mortal, tmp_path, capsys):
    make_run(tmp_path, "one", error=f"raised {RED}red[/b]\nsecond line")
    code, output, _ = mortal("show", "one", "--runs-dir", tmp_path)
    assert code == 0 and "raised \\x1b[31mred[/b]\nsecond line" in output
    logging.lastResort.handle(logging.makeLogRecord({"msg": f"{RED}red", "levelno": 30}))
    assert capsys.readouterr().err == "warning: \\x1b[31mred\n"
    assert printable("a\tb\u202ec\n") == "a\\tb\\u202ec\n"


def test_a_run_is_named_by_its_folder_too(mortal, tmp_path):
    make_run(tmp_path, "one")
    for name in (tmp_path / "one", f"{tmp_path}/one/"):
        code, output, _ = mortal("show", name, "--json")
        assert (code, json.loads(output)["run_id"]) == (0, "one")
    code, _, errors = mortal("stop", tmp_path / "one")
    assert code == 1 and "no process drives run one" in errors


@pytest.mark.parametrize("run_id", ["", "my run", "a/b", "..", "ünï", f"a{RED}b", "a\n"])
def test_an_id_that_no_run_can_have_is_refused_by_name(mortal, tmp_path, run_id):
    config = write_project(tmp_path)
    code, _, errors = mortal("train", config, "--run-id", run_id)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"error: run_id = {run_id!r} cannot name a folder")


def test_the_numbers_of_a_new_model_are_checked(mortal, tmp_path):
    code, _, errors = mortal("new-model", tmp_path / "new", "--hidden-size", "0")
    assert code == 1 and "model.new.hidden_size = 0" in errors
    assert not (tmp_path / "new").exists()


def test_a_run_that_is_driven_is_left_alone_at_once(mortal, tmp_path, monkeypatch):
    config = write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    store = make_run(tmp_path / "runs", "busy")
    lease = acquire(store)
    try:
        for command in (("train", config, "--run-id", "busy"), ("resume", "busy")):
            code, output, errors = mortal(*command)
            assert (code, output.count("\n"), errors.count("\n")) == (1, 1, 1)
            assert output.startswith(("reading ", "looking at run busy ...\n"))
            assert "run busy is in use by process" in errors and "mortal stop busy" in errors
    finally:
        lease.release()
    elsewhere = LeaseRecord(
        host="elsewhere", boot="b", pid=7, started="1", token="t", renewed_at=time.time()
    )
    store.write_record("lease.json", elsewhere, LeaseRecord)
    code, output, errors = mortal("resume", "busy")
    assert (code, output) == (1, "looking at run busy ...\n")
    assert "in use by process 7 on elsewhere" in errors and "taken over in" in errors


def test_a_server_that_is_away_is_named_before_anything_is_written(mortal, tmp_path, monkeypatch):
    config = write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    code, output, errors = mortal("train", config, "--run-id", "one")
    assert (code, output) == (1, f"reading {config} ...\n") and "does not answer" in errors
    assert not Path("runs").exists()


def test_a_long_error_is_shown_by_its_two_ends():
    lines = [f"line {number}" for number in range(100)]
    short = shortened("\n".join(lines), "`mortal show`").splitlines()
    assert len(short) == MOST_LINES
    assert (short[0], short[-1]) == ("line 0", "line 99")
    assert "    ... 89 more lines: `mortal show`" in short
    trace = "broken\nTraceback (most recent call last):\n  File ...\n    raise\nValueError: broken"
    assert shortened(trace, "there") == "broken\n    (4 lines of traceback: there)"
    assert shortened("one\ntwo", "elsewhere") == "one\ntwo"


def test_what_mortal_tells_itself_is_left_out_of_the_logs():
    def line(message):
        return logging.makeLogRecord({"msg": message})

    assert not is_news(line("Encountered exception during execution: StoreError()"))
    twice = {"msg": "View at http://127.0.0.1:4200/runs", "name": "prefect.engine"}
    assert not is_news(logging.makeLogRecord(twice))
    assert is_news(logging.makeLogRecord({**twice, "name": "prefect.flow_runs"}))
    assert is_news(line("Crash detected! Request to the server failed."))
    assert is_news(line("Finished in state Failed('Task run encountered an exception')"))


def test_on_a_terminal_a_command_says_at_once_what_it_does(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "mortal", "train", "missing.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # what Linux says of a terminal that everybody has left
            while more := os.read(ours, 4096):
                shown += more
        os.close(ours)
    doing, _, error = shown.decode().partition("error: ")
    assert (run.returncode, "missing.toml" in error) == (1, True)
    assert "reading missing.toml" in doing


def test_the_version_and_the_examples_are_there(mortal):
    assert mortal("--version")[1].startswith("mortal 0.")
    assert "mortal resume RUN" in mortal("--help")[1]


def test_a_reward_that_hangs_is_seen_to_be_called(mortal, tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("rewards.py").write_text("import time\ndef matches(**_):\n    time.sleep(60)\n")
    code, output, errors = mortal("train", "tiny.toml", "--set", "rewards.timeout_s=0.2")
    assert code == 1 and "gave no answer within 0.2 s" in errors
    checks = [line for line in output.splitlines() if "a Prefect server" not in line]
    assert checks == [
        "reading tiny.toml ...",
        "reading the dataset ...",
        "data       60 rows: 8 held out, 2 left out of training because their prompt is held out "
        "(data.exclude_held_out), 50 to train on",
        "calling the reward functions with a made-up completion ...",
    ]
