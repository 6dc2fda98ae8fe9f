"""Names in the configuration for what users can extend: an entry of a table, or a user's own
`module:name`.

Workers import a user's own from their working folder, in which the run began (`system/imports.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

IMPORTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_imported(name: str) -> bool:
    """Whether the name has the form `module:name`."""
    return IMPORTED.fullmatch(name) is not None


def checked_name(name: str, known: Iterable[str]) -> str:
    """`name`, if it is `known` or of the form `module:name`; raises `ValueError` for any other."""
    names = list(known)
    if name in names or is_imported(name):
        return name
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise ValueError(
        f"{name!r} is not known; {meant} {', '.join(names)}, and what you write yourself, as "
        "'module:name'"
    )
