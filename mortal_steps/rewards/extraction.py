"""What a completion says, without what stands around it: code in fences, tags, thoughts.

Pure functions of a text. Models leave a fence or a tag open where they are cut off, name tags in
their thoughts before they use them, and repeat themselves: each function says what it makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

PYTHON = ("python", "python3", "py")
"""Language tags that Python code goes by."""

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_THINK_TAG = re.compile(r"</?think>")
_THINK_END = re.compile(r"[ \t]*(?:`{3,}|~{3,})?[ \t]*(</think>)")
"""An end of thoughts within a fenced block: nothing but a fence stands before it in its line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
    """A fenced block of Markdown."""

    language: str
    """First word behind the opening fence, in lower case; empty without one."""
    code: str
    """The lines between the fences, without the opening fence's indentation."""
    closed: bool
    """False where the text ends before a closing fence."""


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the fenced blocks of a text, in their order.

    A block ends at a fence of the same character that is as long as the opening one or longer and
    has nothing behind it (as in CommonMark, but for any indentation), or with the text. A fence
    inside a block of longer fences is part of its code.
    """
    return list(_blocks(text))


def extract_code(
    text: str,
    *,
    languages: Collection[str] | None = PYTHON,
    which: Literal["first", "last"] = "last",
    unclosed: bool = True,
) -> str | None:
    """Return the code of a completion: its last or first block in one of `languages`; None without
    one.

    If no block has such a language, blocks without any language tag count. `languages = None` takes
    any block. Blocks of nothing but white space are passed over. With `unclosed = False`, so is a
    block that the text ends in. Where thoughts hold code, too, hand over `without_thoughts(text)`.
    """
    blocks = [one for one in _blocks(text) if one.code.strip() and (one.closed or unclosed)]
    if languages is not None:
        wanted = {language.lower() for language in languages}
        blocks = [one for one in blocks if one.language in wanted] or [
            one for one in blocks if not one.language
        ]
    if not blocks:
        return None
    return blocks[0 if which == "first" else -1].code


def tagged(text: str, tag: str) -> list[str]:
    """Return what stands in `<tag>…</tag>`, in order.

    An opening tag counts only if no other opening one follows before the end: of
    `the <answer> tag: <answer>5</answer>` that is `5`, and so is it of two that are nested. Tags
    without an end hold nothing.
    """
    found = []
    begin: int | None = None
    for mark in re.finditer(f"<(/?){re.escape(tag)}>", text):
        if not mark[1]:
            begin = mark.end()
        elif begin is not None:
            found.append(text[begin : mark.start()])
            begin = None
    return found


def extract_answer(text: str, *, tag: str = "answer") -> str | None:
    """Return what stands in the last `<answer>…</answer>`, without white space around it; None
    without such tags, or if the last one is not closed and none before it is."""
    found = tagged(text, tag)
    return found[-1].strip() if found else None


def extract_thoughts(text: str) -> str | None:
    """Return what stands in the outermost `<think>…</think>`, joined by newlines; None if there is
    none.

    A text may begin within its thoughts, since chat templates put `<think>` into the prompt, and
    may end within them. Tags in a fenced block are code, but for a `</think>` that begins a line:
    models leave blocks open in their thoughts.
    """
    thoughts = [text[begin:end] for begin, end in _thought_spans(text)]
    if not thoughts:
        return None
    return "\n".join(_THINK_TAG.sub("", one).strip() for one in thoughts)


def without_thoughts(text: str) -> str:
    """Return the text but for its thoughts (see `extract_thoughts`), without white space around
    it."""
    left, at = [], 0
    for begin, end in _thought_spans(text):
        left.append(text[at:begin])
        at = end
    return "".join([*left, text[at:]]).strip()


def _blocks(text: str) -> Iterator[CodeBlock]:
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"):
        fence = _FENCE.match(line)
        if opening is None:
            if fence and _opens(fence):
                opening, lines = fence, []
        elif fence and _closes(fence, opening):
            yield _block(opening, lines, closed=True)
            opening = None
        else:
            lines.append(line)
    if opening is not None:
        yield _block(opening, lines, closed=False)


def _opens(fence: re.Match[str]) -> bool:
    return not ("`" in fence["info"] and fence["fence"][0] == "`")  # `` ```x``` ``


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return fence["fence"].startswith(opening["fence"]) and not fence["info"].strip()


def _block(opening: re.Match[str], lines: list[str], *, closed: bool) -> CodeBlock:
    width = len(opening["indent"])
    code = [line[min(width, len(line) - len(line.lstrip())) :] for line in lines]
    words = opening["info"].strip().lower().split(maxsplit=1)
    return CodeBlock(
        language=words[0].strip("{}.") if words else "",  # some write ```{python} or ```{.python}
        code="".join(f"{line}\n" for line in code),
        closed=closed,
    )


def _thought_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where thoughts begin and end, tags included."""
    depth = begin = 0
    for number, (tag_begin, tag_end) in enumerate(_think_tags(text)):
        if text[tag_begin + 1] != "/":
            begin = begin if depth else tag_begin
            depth += 1
        elif depth == 0 and number == 0:  # it began in the prompt
            yield 0, tag_end
        elif depth:
            depth -= 1
            if depth == 0:
                yield begin, tag_end
    if depth:
        yield begin, len(text)


def _think_tags(text: str) -> Iterator[tuple[int, int]]:
    """Where the tags of thoughts begin and end that are no code; a line begins anew behind one."""
    opening: re.Match[str] | None = None
    at = 0
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)  # or the text's own
        fence = _FENCE.match(text[at:end])
        if opening is None:
            tag = _THINK_TAG.search(text, at, end)
            if tag is not None:
                yield tag.span()
                at = tag.end()
                continue
            if fence and _opens(fence):
                opening = fence
        else:
            ending = _THINK_END.match(text, at, end)
            if ending is not None:
                yield ending.span(1)
                opening, at = None, ending.end()
                continue
            if fence and _closes(fence, opening):
                opening = None
        at = end + 1
