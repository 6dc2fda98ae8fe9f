"""Tables with a `type`: each kind has settings of its own.

The kinds that come with MORTAL are named in a registry by `module:Class`, imported where the first
configuration names them, and check their settings when the configuration is read. A kind that a
user wrote is its `type`: `module:Class` or `path/file.py:Class`. Its code is no business of the
process that reads configurations: what the table holds is carried along, and the process that the
kind works in imports it and lets it check its settings.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from mortal_steps.config.section import Section


def of_its_kind(value: Any, base: type[Section], registry: Mapping[str, str]) -> Any:
    """The value as an instance of the class that its `type` names, a subclass of `base` from the
    registry.

    Raises `ValueError` for a `type` that is neither known nor a user's own.
    """
    if not isinstance(value, Mapping):
        return value
    name = value.get("type", base.model_fields["type"].default)
    if not isinstance(name, str) or ":" in name:
        return value
    if name not in registry:
        near = difflib.get_close_matches(name, registry, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(registry)}"
        raise ValueError(f"type = {name!r} is not known; {hint}, or write 'module:Class' of yours")
    return named_class(registry[name]).model_validate(dict(value))


def named_class(spec: str) -> type[Section]:
    """The class that an entry of a registry names."""
    module, _, name = spec.partition(":")
    found: type[Section] = getattr(importlib.import_module(module), name)
    return found
