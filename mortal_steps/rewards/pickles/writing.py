"""What cloudpickle makes of an object, with two exceptions: functions with a cache, which it would
name and not keep, and the environment, which it would copy."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from typing import Any

import cloudpickle

from mortal_steps.rewards.pickles.object_digest import is_imported


def dumps(value: Any) -> bytes:
    """The pickle of an object; raises whatever that object, or one in it, raises."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def reducer_override(self, obj: Any) -> Any:
        if obj is os.environ or obj is os.environb:
            # The other process has one of its own. This one's may hold keys, too.
            return getattr, (os, "environ" if obj is os.environ else "environb")
        if isinstance(obj, functools._lru_cache_wrapper) and is_imported(obj) is None:
            return cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """A function with an empty cache; pickles name this one, so it stays where it is."""
    return functools.lru_cache(**parameters)(function)
