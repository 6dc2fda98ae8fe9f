"""Makes text from elsewhere safe for a terminal."""


def printable(text: str) -> str:
    r"""Return the text with its control characters spelled out, such as `\x1b`; line breaks stay.

    Models, datasets, paths and error messages may hold anything; shown raw, an escape sequence
    would move the cursor or colour what follows, and half a surrogate pair cannot be printed.
    """
    return "".join(char if char == "\n" or char.isprintable() else _spelled(char) for char in text)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
