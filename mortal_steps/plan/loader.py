"""Reads a configuration: a TOML file, flags, `--set` overrides, and errors a user can act on."""

import copy
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mortal_steps.config.algorithm import kind_of
from mortal_steps.config.field_metadata import keys_of, section_of, trl_options_decided
from mortal_steps.config.plain_words import in_plain_words
from mortal_steps.config.rewards import SANDBOX
from mortal_steps.config.trl_options import check_names, config_of
from mortal_steps.environments.table import ENVIRONMENTS
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import Extension, Registry, nearest
from mortal_steps.flags import FLAGS, Flag
from mortal_steps.orchestration.batch_sources.table import BATCH_SOURCES
from mortal_steps.plan import hints
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.selection.table import SELECTIONS

CODE_DATASET: Mapping[str, Any] = {
    "source": "OpenCoder-LLM/opc-sft-stage2",
    "config": "educational_instruct",
    "prompt_column": "instruction",
    "max_samples": 128,
}
"""Settings of `[data]` where nothing names a dataset. The sandbox knows the column with its test
cases."""
OF_A_KIND: Mapping[str, Registry[Extension]] = {
    "algorithm": ALGORITHMS,
    "selection": SELECTIONS,
    "environment": ENVIRONMENTS,
}
"""Tables whose `type` decides which keys they have. The first of a registry is the default."""
MISSING = object()


def read_toml(path: Path) -> dict[str, Any]:
    """Return the nested values of a TOML file; raises `ConfigError` for what is none."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows mark it
        return tomllib.loads(text)
    except FileNotFoundError:
        hint = f"; an override is written --set {path}" if "=" in path.name else ""
        raise ConfigError(f"no such configuration file: {path}{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a TOML file in it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: byte {error.start} is not UTF-8; save it in that encoding"
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = hints.of_toml(str(error), text)
        raise ConfigError(f"{path} is not valid TOML: {error}{hint}") from None


def load_config(
    path: Path | None, overrides: Iterable[str] = (), flags: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the configuration of a TOML file with `section.key=value` overrides and flags applied.

    `flags` are by the names in `FLAGS`; None is a flag that was not given. Without a file and a
    dataset, programs are trained for `CODE_DATASET`, and without a reward the sandbox scores.

    Raises `ConfigError` that names the key, the value and the remedy, also for a flag and an
    override that differ.
    """
    values = {} if path is None else read_toml(path)
    overridden: dict[str, Any] = {}
    for override in overrides:
        apply_override(values, override)
        apply_override(overridden, override)
    flags = {name: given for name, given in (flags or {}).items() if given not in (None, [])}
    for flag in FLAGS:
        if flag.name in flags:
            single_node = bool(flags.get("simple_mode"))
            single_node = single_node or find_key(values, "compute.mode") == "single_node"
            _apply_flag(values, overridden, flag, flags[flag.name], single_node=single_node)
    if path is None:
        config = parse_config(_with_dataset(values), origin="the command line")
    else:
        origin = f"{path} and the command line" if overridden or flags else str(path)
        config = parse_config(values, origin)
    return checked(config)


def checked(config: RunConfig) -> RunConfig:
    """Return the configuration; raises `ConfigError` where its sections alone cannot tell that
    something is wrong: an option that TRL does not have, a mode that the place does not know."""
    if (kind := config_of(config.algorithm.type)) is not None:
        check_names(config.training.trl, kind)
    config.compute.check_mode()
    return config


def _apply_flag(
    values: dict[str, Any],
    overridden: Mapping[str, Any],
    flag: Flag,
    given: Any,
    *,
    single_node: bool,
) -> None:
    for key, value in flag.writes(given, single_node=single_node).items():
        other = find_key(overridden, key)
        if other not in (MISSING, value):
            raise ConfigError(
                f"{flag.written(given)} and --set {key}={other} both set {key}; leave one of them "
                "out"
            )
        write_key(values, key, value)


def _with_dataset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with `CODE_DATASET` where they name no `data.source`. Raises `ConfigError`
    for rewards other than the sandbox without a dataset."""
    whole = copy.deepcopy(dict(values))
    data, rewards = whole.get("data") or {}, whole.get("rewards") or {}
    if not isinstance(data, dict) or not isinstance(rewards, dict) or data.get("source"):
        return whole  # the check of the values refuses what is no table
    if find_key(whole, "environment.factory") not in (MISSING, None):
        return whole  # it may give the prompts
    source = find_key(whole, "rollout.source")
    if isinstance(source, str) and BATCH_SOURCES.entry(source).brings_data:
        return whole
    if not kind_of(whole.get("algorithm")).learns_from_rewards:
        return whole
    named = [*(rewards.get("functions") or ()), *(rewards.get("terms") or ())]
    if named not in ([], [SANDBOX]):
        raise ConfigError(
            f"data.source names no dataset for the reward {named[0]!r} to score; name one with "
            "--dataset"
        )
    whole["data"] = {**CODE_DATASET, **data}
    return whole


def load_stored_config(path: Path) -> RunConfig:
    return parse_config(read_toml(path), origin=str(path))


def parse_config(values: Mapping[str, Any], origin: str = "configuration") -> RunConfig:
    """Plain nested values as a `RunConfig`; raises `ConfigError`."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        lines = dict.fromkeys(_explain(detail, values) for detail in error.errors())
        raise ConfigError("\n".join([f"{origin}:", *(f"  {line}" for line in lines)])) from None


def override_config(config: RunConfig, overrides: Iterable[str]) -> RunConfig:
    """Return the configuration with `section.key=value` overrides applied. A section that gets
    another `type` begins with the defaults of that type, and keeps what else the type knows. Raises
    `ConfigError`."""
    changes = list(overrides)
    if not changes:
        return config
    values = config.model_dump(exclude_unset=True)
    changed: dict[str, Any] = {}
    for change in changes:
        apply_override(values, change)
        apply_override(changed, change)
    for name, section in config:
        kind = find_key(changed, f"{name}.type")
        if kind not in (MISSING, getattr(section, "type", MISSING)):
            _retype(values, name, section, kept=changed[name])
    return parse_config(values, origin="overrides")


def _retype(values: dict[str, Any], name: str, before: BaseModel, kept: Container[object]) -> None:
    """Drop what a section has for the type that it had before: the values that were defaults of
    that type, and the keys that the new type does not know. What `kept` has stays."""
    fields, table = type(before).model_fields, values[name]
    for key in table.keys() & fields.keys():
        default = fields[key].get_default(call_default_factory=True)
        if key not in kept and getattr(before, key) == default:
            del table[key]
    try:
        RunConfig.model_validate(values)
    except ValidationError as error:
        for detail in error.errors():
            of_section = detail["loc"][:1] == (name,) and len(detail["loc"]) == 2
            if of_section and detail["type"] == "extra_forbidden" and detail["loc"][1] not in kept:
                del table[str(detail["loc"][1])]


def dump_toml(config: RunConfig) -> str:
    """Return the resolved configuration as TOML; keys without a value are left out."""
    import tomli_w  # workers, which only read, have environments without it

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def find_key(values: Mapping[str, Any], key: str) -> Any:
    """Return a dotted key's value in nested values, or `MISSING`."""
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def apply_override(values: dict[str, Any], override: str) -> None:
    """Write `section.key=value` into nested values; raises `ConfigError` if that cannot be."""
    dotted, separator, text = override.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not separator or not all(keys):
        raise ConfigError(f"--set {override!r}: write it as section.key=value")
    _write(values, keys, _parse_value(text.strip()), written=f"--set {override!r}")


def write_key(values: dict[str, Any], key: str, value: Any) -> None:
    """Write a value into nested values; raises `ConfigError` if the key leads through a value."""
    _write(values, key.split("."), value, written=f"{key} = {value!r}")


def _write(values: dict[str, Any], keys: list[str], value: Any, written: str) -> None:
    table = values
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{written}: {key!r} is a value, not a section")
    table[keys[-1]] = value


def _parse_value(text: str) -> Any:
    """Return a TOML value, None for `null`, or the text itself: quotes can be left out."""
    if text == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(detail: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    location = _as_written(detail["loc"], values)
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
    return f"{key}: {message}" if detail["type"] == "missing" else f"{key} = {given!r}: {message}"


def _as_written(location: Sequence[int | str], values: Any) -> list[str]:
    """Return the names on the way to a value, without pydantic's for what a key may be instead."""
    found: list[str] = []
    for number, part in enumerate(location, start=1):
        if isinstance(part, str) and isinstance(values, Mapping):
            if part in values or number == len(location):
                found.append(part)
                values = values.get(part)
        elif isinstance(part, int) and isinstance(values, list | tuple):
            values = values[part] if part < len(values) else None
    return found


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
