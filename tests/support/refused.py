"""What is refused, by what its error has to tell: the key, the value, the remedy, in any words."""

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], *told: str
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block raises this error, and each part is in its message."""
    assert told, "an error tells something"
    with pytest.raises(kind) as raised:
        yield raised
    said = str(raised.value)
    assert [part for part in told if part not in said] == [], said
