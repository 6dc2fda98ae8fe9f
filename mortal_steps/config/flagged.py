"""Makes a configuration of a file, if there is one, flags and `--set` overrides."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import apply_override, parse_config, read_toml, write_key
from mortal_steps.config.rewards import SANDBOX
from mortal_steps.errors import ConfigError
from mortal_steps.flags import FLAGS, Flag

CODE_DATASET: Mapping[str, Any] = {
    "source": "OpenCoder-LLM/opc-sft-stage2",
    "config": "educational_instruct",
    "prompt_column": "instruction",
    "max_samples": 128,
}
"""Settings of `[data]`. The test cases are in the column `testcase`, which the sandbox knows."""
MISSING = object()


def flagged_config(
    path: Path | None, flags: Mapping[str, Any], overrides: Iterable[str] = ()
) -> RunConfig:
    """Return the configuration of a TOML file with `section.key=value` overrides and flags applied.

    `flags` are by the names in `FLAGS`; None is a flag that was not given. Without a file, what
    nobody says is as `without_file` has it.

    Raises `ConfigError` that names the key, the value and the remedy, for a flag and an override
    that differ, too.
    """
    values = {} if path is None else read_toml(path)
    overridden: dict[str, Any] = {}
    for override in overrides:
        apply_override(values, override)
        apply_override(overridden, override)
    for flag, given in _given(flags):
        for key, value in flag.writes(given, single_node=_is_single_node(values, flags)).items():
            said = find_key(overridden, key)
            if said not in (MISSING, value):
                raise ConfigError(
                    f"{written(flag, given)} and --set {key}={said} both set {key}; leave one of "
                    "them out"
                )
            write_key(values, key, value)
    if path is None:
        config = parse_config(without_file(values), origin="the command line")
    else:
        said = overridden or any(_given(flags))
        config = parse_config(values, origin=f"{path} and the command line" if said else str(path))
    config.compute.check_mode()
    return config


def written(flag: Flag, given: Any) -> str:
    """Return the flag as it is typed on the command line."""
    if isinstance(given, list | tuple):
        return " ".join(f"{flag.option} {one}" for one in given)
    if isinstance(given, bool):
        return flag.option if given else flag.option.replace("--", "--no-", 1)
    return f"{flag.option} {given}"


def find_key(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key such as `training.max_steps` in nested values; `MISSING` if it is
    not there."""
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def _given(flags: Mapping[str, Any]) -> Iterator[tuple[Flag, Any]]:
    for flag in FLAGS:
        given = flags.get(flag.name)
        if given is not None and given != []:
            yield flag, given


def _is_single_node(values: Mapping[str, Any], flags: Mapping[str, Any]) -> bool:
    return bool(flags.get("simple_mode")) or find_key(values, "compute.mode") == "single_node"


def without_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a configuration with `CODE_DATASET` where they name no `data.source`.

    The model is the default of `model.name_or_path`, and without a reward the sandbox scores.
    Raises `ConfigError` for rewards of another kind without a dataset.
    """
    whole = copy.deepcopy(dict(values))
    data, rewards = whole.get("data") or {}, whole.get("rewards") or {}
    if not isinstance(data, dict) or not isinstance(rewards, dict) or data.get("source"):
        return whole  # what is no table, whoever checks the values says
    named = [*(rewards.get("functions") or ()), *(rewards.get("terms") or ())]
    if named not in ([], [SANDBOX]):
        raise ConfigError(
            f"data.source names no dataset for the reward {named[0]!r} to score; name one with "
            "--dataset"
        )
    whole["data"] = {**CODE_DATASET, **data}
    return whole
