"""The keys of a configuration, and what is told of one that is wrong."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mortal_steps.config.field_metadata import keys_of, section_of, trl_options_decided
from mortal_steps.config.plain_words import in_plain_words
from mortal_steps.environments.table import ENVIRONMENTS
from mortal_steps.extensions import Extension, Registry, nearest
from mortal_steps.plan import hints
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.selection.table import SELECTIONS

OF_A_KIND: Mapping[str, Registry[Extension]] = {
    "algorithm": ALGORITHMS,
    "selection": SELECTIONS,
    "environment": ENVIRONMENTS,
}
"""Tables whose `type` decides which keys they have. The first of a registry is the default."""


def every_key() -> Iterator[tuple[str, FieldInfo]]:
    """Return every key of a configuration, such as `training.lora.r`, with its description."""
    return keys_of(RunConfig)


def section_at(location: Iterable[str]) -> type[BaseModel] | None:
    """Return the class of a table, such as `["training", "lora"]`, if there is one."""
    section: type[BaseModel] | None = RunConfig
    for part in location:
        field = section.model_fields.get(part) if section else None
        section = section_of(field.annotation) if field else None
    return section


def explained(detail: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return what pydantic has found in these nested values as a line: the key, the value, and what
    is wrong with it."""
    location = [part for part in detail["loc"] if isinstance(part, str)]
    key = ".".join(location)
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{_suggest(location, values)}"
    given = detail["input"]
    message = in_plain_words(str(detail["msg"]))
    if detail["type"] == "tuple_type" and isinstance(given, str):
        message = hints.of_list(given, _annotation_at(location))
    if detail["type"] == "value_error" and (
        not isinstance(given, str | int | float) or repr(given) in message
    ):
        return f"{key}: {message}" if key else message
    return f"{key} = {given!r}: {message}"


def _annotation_at(location: list[str]) -> Any:
    section = section_at(location[:-1])
    field = section.model_fields.get(location[-1]) if section else None
    return field.annotation if field else None


def _suggest(location: list[str], values: Mapping[str, Any]) -> str:
    *table, name = location
    kinds = OF_A_KIND.get(".".join(table))
    section = _kind_of(values[table[0]], kinds) if kinds else section_at(table)
    siblings = list(section.model_fields) if section else []
    of_trl = table == ["training"]
    decided = trl_options_decided(RunConfig)
    if of_trl and name in decided:
        return f"; TRL's {name} is set by {decided[name]}"
    near = nearest(name, siblings, cutoff=0.6)
    meant = f"; did you mean {'.'.join([*table, near])}?" if near else _suggest_elsewhere(name)
    if of_trl:
        option = f"an option of TRL's own is written training.trl.{name}"
        return f"{meant} ({option})" if meant else f"; {option}"
    return meant or (f"; known keys here: {', '.join(siblings)}" if siblings else "")


def _kind_of(table: Mapping[str, Any], kinds: Registry[Extension]) -> type[BaseModel]:
    """Return the class of a table with a `type`, one of those that refuse unknown keys."""
    kind: type[BaseModel] = kinds.load(table.get("type", next(iter(kinds))))
    return kind


def _suggest_elsewhere(name: str) -> str:
    """Return the first of the outermost keys of nearly that name."""
    everywhere: dict[str, str] = {}
    for key in sorted((key for key, _ in every_key()), key=lambda key: key.count(".")):
        everywhere.setdefault(key.rpartition(".")[2], key)
    near = nearest(name, everywhere, cutoff=0.75)
    return f"; did you mean {everywhere[near]}?" if near else ""
