"""The examples in the documentation, taken out of its Markdown."""

import re
from pathlib import Path

from tests.support.paths import ROOT

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: str, heading: str) -> list[tuple[str, str]]:
    """Language and text of each fenced block below a heading of a page in docs/, in order."""
    text = (ROOT / "docs" / page).read_text()
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return FENCED.findall(section)


def write_modules(page: str, heading: str, folder: Path) -> list[Path]:
    """Write the Python examples below a heading into a folder, each under the name in its first
    line (`# replay.py`); one without a name is a part of another."""
    written = []
    for language, text in examples(page, heading):
        if language == "python" and text.startswith("# "):
            path = folder / text.partition("\n")[0].removeprefix("# ")
            path.write_text(text)
            written.append(path)
    return written


def settings(page: str, heading: str) -> str:
    """Return the TOML example below a heading."""
    (toml,) = [text for language, text in examples(page, heading) if language == "toml"]
    return toml


def python_blocks(page: Path, headings: tuple[str, ...] = ()) -> list[str]:
    """Every Python block of a Markdown file, or of those sections of it (`## heading`)."""
    text = page.read_text()
    if headings:
        wanted = "|".join(map(re.escape, headings))
        sections = re.findall(rf"^## (?:{wanted})\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        assert len(sections) == len(headings), f"{page} has not all of {headings}"
        text = "".join(sections)
    return [block for language, block in FENCED.findall(text) if language == "python"]
