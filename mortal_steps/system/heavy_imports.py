"""Imports of large libraries, without the work that is of no use here."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
from collections.abc import Iterator

from mortal_steps.system.distributions import packages_distributions


@contextlib.contextmanager
def heavy_imports() -> Iterator[None]:
    """A block that imports large libraries and makes nothing that ends up as garbage.

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


@contextlib.contextmanager
def training_imports() -> Iterator[None]:
    """`heavy_imports` of transformers and TRL: the packages that are installed are looked through
    quickly, and once, where each of the two would do it for itself."""
    look = importlib.metadata.packages_distributions
    importlib.metadata.packages_distributions = functools.cache(packages_distributions)
    try:
        with heavy_imports():
            yield
    finally:
        importlib.metadata.packages_distributions = look
