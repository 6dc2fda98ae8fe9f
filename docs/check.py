"""Does the documentation speak of what is there? `make check` asks.

    python docs/check.py [ROOT]

In every Markdown file of the repository, outside fenced code blocks: relative links lead to files,
and anchors to headings. File names in backticks, such as `rewards/base.py`, are the end of the path
of a file here. Inside fenced blocks and backticks, `make TARGET` names a target of the Makefile.
Nothing is fetched from the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

SKIPPED = {"build", "dist", "runs"}
"""Folders of the root that hold no documentation of ours, besides hidden ones."""
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
WORKFLOW = re.compile(r"\.\./\.\./actions/workflows/([\w.-]+\.yml)(?:/badge\.svg)?")
"""A link of the root's pages to a workflow's runs, which GitHub has beside the files."""
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
CODE = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"(?:\.?[\w-]+/)*[\w-]+\.(?:py|toml|yaml|yml|md|txt)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)\b")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
OF_A_RUN = {"config.toml", "report.md", "gsm8k.toml", "rewards.py", "train.jsonl", "mine.toml"}
"""File names that stand for a reader's own files, or for those of a run."""


def problems(root: Path) -> Iterator[str]:
    """A line for each thing that is not there."""
    files = [path.relative_to(root).as_posix() for path in _files(root)]
    targets = set(TARGET.findall((root / "Makefile").read_text(encoding="utf-8")))
    for name in files:
        if name.endswith(".md"):
            for number, problem in _problems_of(root / name, root, files, targets):
                yield f"{name}:{number}: {problem}"


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.is_file():
            yield path
        elif path.name == ".github" or not (path.name in SKIPPED or path.name.startswith(".")):
            yield from sorted(inner for inner in path.rglob("*") if inner.is_file())


def _problems_of(
    page: Path, root: Path, files: list[str], targets: set[str]
) -> Iterator[tuple[int, str]]:
    for number, text, is_code in _lines(page):
        if is_code:
            commands = [text]
        else:
            commands = CODE.findall(text)
            for target in LINK.findall(CODE.sub("", text)):
                if problem := _broken(target, page, root):
                    yield number, problem
            for code in commands:
                if FILE_NAME.fullmatch(code) and not _names_a_file(code, files):
                    yield number, f"there is no file {code}"
        for command in commands:
            for target in MAKE.findall(command.partition("#")[0]):
                if target not in targets:
                    yield number, f"the Makefile has no target {target}"


def _lines(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Number and text of each line, and whether it is inside a fenced code block."""
    fenced = False
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(text):
            fenced = not fenced
        else:
            yield number, text, fenced


def _broken(target: str, page: Path, root: Path) -> str | None:
    """What is wrong with a link, if anything is."""
    if re.match(r"[a-z]+:", target):
        return None
    if badge := WORKFLOW.fullmatch(target):
        exists = (root / ".github" / "workflows" / badge[1]).exists()
        return None if exists else f"there is no workflow {badge[1]}"
    path, _, anchor = unquote(target).partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.is_relative_to(root.resolve()):
        return f"the link {target} leaves the repository"
    if not found.exists():
        return f"the link {target} leads nowhere"
    if anchor and found.suffix == ".md" and anchor not in _anchors(found):
        return f"the link {target} names no heading of {found.name}"
    return None


def _anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    seen: dict[str, int] = {}
    anchors = set()
    for _, text, is_code in _lines(page):
        heading = None if is_code else HEADING.match(text)
        if heading:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            count = seen.get(anchor, 0)
            seen[anchor] = count + 1
            anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def _names_a_file(name: str, files: list[str]) -> bool:
    return name in OF_A_RUN or any(f"/{file}".endswith(f"/{name}") for file in files)


def main() -> None:
    """Print what is wrong; exit code 1 if anything is."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    found = list(problems(root))
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
