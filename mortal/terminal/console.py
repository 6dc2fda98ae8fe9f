"""What `mortal` prints tables and colours with: rich, which shows what runs hold as it is."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from mortal_steps.report.printable import printable


class PlainConsole(Console):
    """Takes text at its word: brackets are no markup, and control characters are spelled out."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=stderr)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render every string that rich is given, in tables, too."""
        return super().render_str(printable(text), **options)


console = PlainConsole()


def in_columns(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Return a line for each row; no cell is ever cut. With `numbers`, all columns but the first
    are aligned on the right."""
    rows = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        for cell, width in zip(others, widths[1:], strict=True):
            cells.append(cell.rjust(width) if numbers else cell.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def print_columns(rows: Sequence[Sequence[str]], *, title: str = "", numbers: bool = False) -> None:
    """Print a table, whose first row is its heading."""
    if title:
        console.print()
        console.print(Text(title, style="italic"))
    for index, line in enumerate(in_columns(rows, numbers=numbers)):
        console.print(Text(line, style="" if index else "bold"))
