"""Breaks long lines where a reader would, and not within a command that may be copied."""

import re
import textwrap

GLUE = "\0"


def at_words(text: str, width: int, indent: int = 0) -> str:
    """Return the text in lines of at most `width` columns, the first of which begins at `indent`,
    as all others do; a line that is indented further stays so. Words stay whole, and so does what
    stands in backticks: a command."""
    glued = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", GLUE), text)
    lines = [
        part
        for line in glued.split("\n")
        for part in textwrap.wrap(
            line,
            max(1, width - indent),
            subsequent_indent=line[: len(line) - len(line.lstrip())],
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
    ]
    return f"\n{' ' * indent}".join(lines).replace(GLUE, " ")
