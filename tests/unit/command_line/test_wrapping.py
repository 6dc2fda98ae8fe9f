"""Long lines on a terminal."""

import sys

from mortal.terminal.output import tell
from mortal.terminal.wrapping import at_words


def test_lines_are_broken_at_words_and_commands_stay_whole() -> None:
    text = "stopped after 24 steps, state saved; continue with `mortal resume tm --runs-dir there`"
    lines = at_words(text, 40, indent=4).split("\n")
    assert lines == [
        "stopped after 24 steps, state saved;",
        "    continue with",
        "    `mortal resume tm --runs-dir there`",
    ]
    assert at_words(text, 200) == text
    assert at_words("one\ntwo  three\n", 40) == "one\ntwo  three\n"
    assert at_words("x" * 50, 40) == "x" * 50
    assert at_words("a:\n  one two three", 10) == "a:\n  one two\n  three"


def test_a_line_of_the_dry_run_is_broken_below_its_name_on_a_terminal(capsys, monkeypatch) -> None:
    line = "batch      256 completions, trained in 1 micro-batch (`a = 1`)"
    tell(line)
    assert capsys.readouterr().out == f"{line}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "44")
    tell(line)
    tell("data")
    assert capsys.readouterr().out.splitlines() == [
        "batch      256 completions, trained in 1",
        "           micro-batch (`a = 1`)",
        "data",
    ]
