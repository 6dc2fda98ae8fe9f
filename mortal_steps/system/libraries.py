"""Versions of the libraries that compute a run's numbers.

Another version may round in another way. A run notes those that it begins with, and says so when it
is continued with others.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

LIBRARIES = ("accelerate", "numpy", "peft", "tokenizers", "torch", "transformers", "trl")
"""Of this interpreter. One that a role names for itself, such as vLLM's, is not asked."""


def library_versions() -> dict[str, str]:
    """Those that are installed, by name."""
    return {name: version for name in LIBRARIES if (version := _version(name)) is not None}


def changed_libraries(begun: Mapping[str, str]) -> list[str]:
    """In words, what is installed otherwise than when a run with `begun` began."""
    now = library_versions()
    return [
        f"{name} was {begun.get(name, 'not installed')}, now {now.get(name, 'not installed')}"
        for name in sorted(begun.keys() | now.keys())
        if begun.get(name) != now.get(name)
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
