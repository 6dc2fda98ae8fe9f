"""What a completion says, without what stands around it: code in fences, tags, thoughts.

Pure functions of a text. Models leave a fence or a tag open where they are cut off, name tags in
their thoughts before they use them, and repeat themselves: each function says what it makes of it.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

PYTHON = ("python", "python3", "py")
"""Language tags that Python code goes by."""

_OPENING = r"(?P<indent>[ \t]*)(?P<fence>(?P<mark>[`~])(?P=mark){2,})(?:(?<=~)|(?!.*`))(?P<info>.*)"
_CLOSING = r"^[ \t]*(?P=fence)(?P=mark)*[^\S\n]*$"
"""The lines around a fenced block, as in CommonMark; between backticks there are no others."""
_BLOCK = re.compile(rf"^{_OPENING}\n(?P<code>(?s:.*?))(?:(?P<closing>{_CLOSING})|\Z)", re.M)

_THINK_END = r"^[ \t]*(?:`{3,}|~{3,})?[ \t]*</think>"
"""End of the thoughts within a fenced block: nothing but a fence stands before it in its line."""
_CODE_OR_THINK_TAG = re.compile(
    rf"(?:^|(?<=think>))(?!.*</?think>){_OPENING}(?s:.*?)(?:{_CLOSING}|(?={_THINK_END})|\Z)"
    r"|(?P<tag></?think>)",
    re.M,
)


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
    lines = text.replace("\r\n", "\n").removesuffix("\n") + "\n"
    return [_block(found) for found in _BLOCK.finditer(lines)]


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
    blocks = [one for one in code_blocks(text) if one.code.strip() and (one.closed or unclosed)]
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
    return "\n".join(re.sub("</?think>", "", one).strip() for one in thoughts)


def without_thoughts(text: str) -> str:
    """Return the text without its thoughts (`extract_thoughts`), stripped."""
    left, at = [], 0
    for begin, end in _thought_spans(text):
        left.append(text[at:begin])
        at = end
    return "".join([*left, text[at:]]).strip()


def _block(found: re.Match[str]) -> CodeBlock:
    width = len(found["indent"])
    words = found["info"].strip().lower().split(maxsplit=1)
    return CodeBlock(
        language=words[0].strip("{}.") if words else "",  # some write ```{python} or ```{.python}
        code=re.sub(rf"^[ \t]{{0,{width}}}", "", found["code"], flags=re.M),
        closed=found["closing"] is not None,
    )


def _thought_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where thoughts begin and end, tags included."""
    depth = begin = 0
    tags = [found for found in _CODE_OR_THINK_TAG.finditer(text) if found["tag"]]
    for number, tag in enumerate(tags):
        if tag["tag"] == "<think>":
            begin = begin if depth else tag.start()
            depth += 1
        elif depth == 0 and number == 0:  # it began in the prompt
            yield 0, tag.end()
        elif depth:
            depth -= 1
            if depth == 0:
                yield begin, tag.end()
    if depth:
        yield begin, len(text)
