"""Imports of large libraries."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def imports_without_gc() -> Iterator[None]:
    """Import large libraries in the block, without looking for garbage in between.

    Each collection would look at all that is there: a tenth of the time of torch and TRL, a fifth
    of that of Prefect's server. What the block has made is not looked at again, either, so that a
    process which is forked shares it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
