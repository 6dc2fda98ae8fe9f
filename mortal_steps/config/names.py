"""Names in the configuration of what can be added to: entries of a table, or a user's own.

A user's own is written `module:name`. Workers import it from their working folder, which is the
one that the run began in (`system/imports.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

IMPORTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_imported(name: str) -> bool:
    """Whether the name says where to import from: `module:name`."""
    return IMPORTED.fullmatch(name) is not None


def checked_name(name: str, known: Iterable[str]) -> str:
    """`name`, one of those `known` or `module:name`; raises `ValueError` for another."""
    names = list(known)
    if name in names or is_imported(name):
        return name
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise ValueError(
        f"{name!r} is not known; {meant} {', '.join(names)}, and what you write yourself, as "
        "'module:name'"
    )
