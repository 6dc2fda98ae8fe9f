"""No search for garbage while there is none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A block that imports large libraries.

    What imports make stays, and each collection looks at all that is there: a tenth of the time of
    torch and TRL, a fifth of that of Prefect's server. What the block has made is not looked at
    again, either, so a process that is forked shares it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
