"""The configuration's own documentation: every key, its default, its meaning, as valid TOML."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import Any, Literal, get_args, get_origin

import tomli_w
from pydantic.fields import FieldInfo

from mortal_steps.config import RunConfig
from mortal_steps.config.keys import keys_of
from mortal_steps.errors import ConfigError

WIDTH = 100

OPTIONAL_TABLES = ("model.new", "model.warm_start")
"""Tables that switch something on by being there."""


def reference_toml(section: str | None = None) -> str:
    """Keys below `section` (default: all), grouped by table; those without a default commented out.

    Raises `ConfigError` for a section that does not exist.
    """
    wanted = f"{section}." if section else ""
    keys = [(key, field) for key, field in keys_of(RunConfig) if key.startswith(wanted)]
    if not keys:
        sections = sorted({key.rpartition(".")[0] for key, _ in keys_of(RunConfig)} - {""})
        raise ConfigError(f"no section {section!r}; there are {', '.join(sections)}")
    tables: dict[str, list[str]] = defaultdict(list)
    for key, field in keys:
        table, _, name = key.rpartition(".")
        tables[table].append(_entry(name, field))
    return "\n".join(_table(table, entries) for table, entries in tables.items())


def _table(table: str, entries: list[str]) -> str:
    """One table; commented out where its being there means something, as for `[model.new]`."""
    heading = f"[{table}]\n" if table else ""
    text = heading + "".join(entries)
    return textwrap.indent(text, "# ") if table in OPTIONAL_TABLES else text


def _entry(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    choices = _choices(field.annotation)
    if choices:
        meaning = f"{meaning} One of {', '.join(choices)}.".strip()
    comment = textwrap.fill(meaning, WIDTH, initial_indent="# ", subsequent_indent="# ")
    default = field.get_default(call_default_factory=True)
    line = f"# {name} =\n" if default is None else tomli_w.dumps({name: _plain(default)})
    if default == {}:
        line = f"{name} = {{}}\n"
    return f"{comment}\n{line}" if meaning else line


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _choices(annotation: Any) -> list[str]:
    """Of a Literal, or of one that may be left out."""
    for candidate in (annotation, *get_args(annotation)):
        if get_origin(candidate) is Literal:
            return [repr(choice) for choice in get_args(candidate)]
    return []
