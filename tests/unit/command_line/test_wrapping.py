"""Long lines on a terminal."""

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
