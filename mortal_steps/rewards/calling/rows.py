"""Rows of their own for the completions of a problem.

Groups have their problem once, and so has what is sent to the process of the functions. TRL reads
the row anew for each completion: a function that uses up a list of its row, or appends to its
prompt, finds the rows of the other completions as they were.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

IMMUTABLE = frozenset({str, int, float, bool, type(None)})


def with_own_rows(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, in which no two completions share an object that a function
    could change. One of those that share it keeps it; the others have copies."""
    copiers: dict[int, Callable[[], Any] | None] = {}

    def own(value: Any) -> Any:
        if type(value) in IMMUTABLE:
            return value
        if id(value) not in copiers:
            copiers[id(value)] = None
            return value
        made = copiers[id(value)] = copiers[id(value)] or _copier(value)
        return made()

    return {
        name: [own(value) for value in given] if isinstance(given, list) else given
        for name, given in by_name.items()
    }


def _copier(value: Any) -> Callable[[], Any]:
    """Return what makes copies of a value. It is looked at once, not for each copy, and a list of
    texts or numbers is copied as a whole: a tenth of what unpickling takes."""
    whole: Callable[[], Any]
    if type(value) is list:
        if IMMUTABLE.issuperset(map(type, value)):
            whole = value.copy
            return whole
        items = [(item, _copier_if_needed(item)) for item in value]
        return lambda: [item if made is None else made() for item, made in items]
    if type(value) is dict:
        if IMMUTABLE.issuperset(map(type, value.values())):
            whole = value.copy
            return whole
        held = [(key, item, _copier_if_needed(item)) for key, item in value.items()]
        return lambda: {key: item if made is None else made() for key, item, made in held}
    return partial(copy.deepcopy, value)


def _copier_if_needed(value: Any) -> Callable[[], Any] | None:
    return None if type(value) in IMMUTABLE else _copier(value)
