"""What `mortal` prints tables and colours with: rich, which shows what runs hold as it is."""

from __future__ import annotations

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
