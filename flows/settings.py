"""What a flow run trains: the configuration that its parameters make, and the run's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config, override_config
from mortal_steps.errors import ConfigError
from mortal_steps.store.identity import IDENTITY_FILE


def settings(
    flow_run_id: UUID,
    config: RunConfig | None,
    config_file: str | None,
    overrides: Sequence[str],
    backend: str | None = None,
) -> RunConfig:
    """The configuration of a flow run, with a run id of its own where it names none.

    A `config_file` goes before `config`, which a deployment may have as its default; `overrides`
    change either, and go before the `backend`. Raises `ConfigError`.
    """
    if backend is not None:
        overrides = [f"compute.backend={backend}", *overrides]
    if config_file is not None:
        chosen = load_config(Path(config_file), overrides)
    elif config is not None:
        chosen = override_config(config, overrides)
    else:
        raise ConfigError("this flow run has no configuration; set `config`, or `config_file`")
    return chosen.model_copy(update={"run_id": run_id(flow_run_id, chosen)})


def run_name(flow_run_id: UUID, parameters: Mapping[str, Any]) -> str:
    """`grpo/<run id>`; where the parameters make no configuration, the flow run's own id, for then
    the flow says what is wrong with them."""
    given = {name: parameters.get(name) for name in ("config", "config_file", "backend")}
    try:
        chosen = settings(flow_run_id, **given, overrides=parameters.get("overrides") or ())
    except ConfigError:
        return f"grpo/{flow_run_id}"
    return f"grpo/{chosen.run_id}"


def run_id(flow_run_id: UUID, config: RunConfig) -> str:
    """The run id that the configuration names, or one made from that of the flow run, so that a
    Retry finds its run again.

    The server schedules several flow runs at once, and the ids of those begin with the same time:
    only the end of an id, which is random, tells them apart.
    """
    if config.run_id is not None:
        return config.run_id
    earlier = f"{config.name}-{flow_run_id.hex[:8]}"
    if flow_run_id.version == 4 and (Path(config.runs_dir) / earlier / IDENTITY_FILE).exists():
        return earlier  # begun by a version of this code that took the first digits, here random
    return f"{config.name}-{flow_run_id.hex[-12:]}"
