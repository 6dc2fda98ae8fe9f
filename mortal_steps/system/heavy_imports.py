"""Imports of large libraries, without the work that is of no use here."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import sys
from collections.abc import Iterator

TRACKERS = ("wandb", "trackio", "mlflow", "comet_ml")
"""transformers and TRL import each of them wherever it is installed, and no worker logs to one."""


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
    """`heavy_imports` of transformers and TRL: no tracker is there for them, and the packages that
    are installed are looked through once, where each of the two would do it for itself."""
    hidden = [name for name in TRACKERS if name not in sys.modules]
    look = importlib.metadata.packages_distributions
    with heavy_imports():
        hide_trackers()
        importlib.metadata.packages_distributions = functools.cache(look)
        try:
            yield
        finally:
            importlib.metadata.packages_distributions = look
            for name in hidden:
                del sys.modules[name]


def hide_trackers() -> None:
    """From every import to come; those that are there stay."""
    for name in TRACKERS:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
