"""Reads the settings that a kind of stage has of its own."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from mortal_steps.config.plain_words import in_plain_words
from mortal_steps.config.section import Section
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest

Settings = TypeVar("Settings", bound=Section)


def read_table(kind: type[Settings], values: Any, called: str) -> Settings:
    """Return the settings; `called` is the table's name. Raises `ConfigError` that names the key,
    its value and the remedy."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{called} = {values!r}: must be a table, [{called}]")
    known = kind.model_fields
    for name in values:
        if name not in known:
            near = nearest(str(name), known, cutoff=0.6)
            meant = f"did you mean {called}.{near}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{called}.{name}: unknown key; {meant}")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError("\n".join(_lines(error, called))) from None


def _lines(error: ValidationError, called: str) -> list[str]:
    lines = []
    for detail in error.errors():
        key = ".".join([called, *map(str, detail["loc"])])
        has_value = detail["loc"] and detail["type"] != "missing"
        given = f" = {detail['input']!r}" if has_value else ""
        lines.append(f"{key}{given}: {in_plain_words(str(detail['msg']))}")
    return lines
