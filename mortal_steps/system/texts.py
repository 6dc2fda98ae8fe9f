"""Makes texts of a model or a reward function safe to store and print; they may hold anything.

JSON can hold halves of surrogate pairs (`"\\ud83d"`), which UTF-8 cannot, and control characters,
which affect a terminal.
"""


def storable(text: str) -> str:
    """Return the text, with what UTF-8 cannot hold written as an escape."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def printable(text: str) -> str:
    """Return a `storable` text with control characters, but for tab and newline, as escapes."""
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode()
        for character in storable(text)
    )


def one_line(text: str, length: int) -> str:
    """Return one storable, printable line; what exceeds `length` is not looked at."""
    return cut(printable(" ".join(text[: 4 * length].split())), length)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
