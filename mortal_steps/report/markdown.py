"""Pieces of Markdown around text from elsewhere, which stays what it is: text.

Models, datasets and error messages may hold Markdown, HTML, backticks. In a fenced block or a code
span, none of it means anything.
"""

import re
from collections.abc import Sequence

from mortal_steps.report.printable import printable

BAR_WIDTH = 20
"""Characters of a full bar."""
MOST_CHARS = 1200
"""Characters of a fenced text; the middle of a longer one is left out."""
MOST_LINES = 30


def fenced(text: str) -> str:
    """Return a block that shows the text as it is, cut to a readable length."""
    shown = shortened(printable(text))
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}"


def code(text: str) -> str:
    """Return a span that shows the text as it is, on one line."""
    shown = " ".join(printable(text).split()) or " "
    fence = "`" * (_longest_run(shown) + 1)
    space = " " if "`" in shown else ""
    return f"{fence}{space}{shown}{space}{fence}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], aligned: str) -> str:
    """Return a table; `aligned` has a letter for each column, `l` or `r`. Cells are Markdown."""
    rule = ["---:" if side == "r" else ":---" for side in aligned]
    lines = [headings, rule, *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in cells)} |" for cells in lines)


def bar(share: float) -> str:
    """Return a bar of block characters for a part of a whole, 0 to 1."""
    full = round(share * BAR_WIDTH)
    return "█" * full if full or not share else "▏"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def shortened(text: str) -> str:
    """Return the beginning and the end of a text that is too long to read: a completion's answer
    is at its end, and so is what matters of a traceback."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        half = MOST_LINES // 2
        text = "\n".join([*lines[:half], f"[... {left_out:,} lines ...]", *lines[-half:]])
    if len(text) > MOST_CHARS:
        left_out = len(text) - MOST_CHARS
        half = MOST_CHARS // 2
        text = f"{text[:half]} [... {left_out:,} characters ...] {text[-half:]}"
    return text
