"""Keys that earlier versions of this code had under other names, or had and dropped.

Run directories are read for ever, so a configuration that is read back from one, or from the
parameters of a flow run that began earlier, is brought up to date without a word. In what somebody
writes now, an old key is an error that tells the present one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

RENAMED = {
    "rollout.weight_sync_method": "rollout.weight_sync",
    "rewards.rehearse": "rewards.dry_run",
    "compute.modal.deadline_s": "compute.modal.call_timeout_s",
    "logging.server_patience_s": "logging.server_timeout_s",
}
"""Earlier name of a key -> its present name."""

RETIRED = {
    "logging.use_wandb": "write logging.report_to = ['wandb']",
    "logging.artifact_steps": "the report is written after evaluations and checkpoints; leave it "
    "out",
    "logging.wandb_project": "write logging.project",
}
"""Keys that were removed, each with what to do. None of them ever affected what a run computes."""


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under the present names of their keys."""
    present = copy.deepcopy(dict(values))
    for old, new in RENAMED.items():
        table = _table(present, old)
        if table is not None:
            value = table.pop(_name(old))
            _table_of(present, new).setdefault(_name(new), value)
    for old in RETIRED:
        table = _table(present, old)
        if table is not None:
            del table[_name(old)]
    return present


def old_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each key in `values` that has another name now."""
    for old, new in RENAMED.items():
        if _table(values, old) is not None:
            yield f"{old} is now {new}; write that in its place"
    for old, remedy in RETIRED.items():
        if _table(values, old) is not None:
            yield f"{old}: {remedy}"


def _table(values: Mapping[str, Any], key: str) -> Any:
    """The table that holds `key`; None if there is none."""
    table: Any = values
    for part in key.split(".")[:-1]:
        table = table.get(part) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) and _name(key) in table else None


def _table_of(values: dict[str, Any], key: str) -> dict[str, Any]:
    """The table to which `key` belongs; it is made if it is missing."""
    table = values
    for part in key.split(".")[:-1]:
        table = table.setdefault(part, {})
    return table


def _name(key: str) -> str:
    return key.rpartition(".")[2]
