"""What a flow run trains: the configuration that its parameters make, and the run's id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config, override_config
from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.orchestration.opening import changes
from mortal_steps.runs.run import find_run
from mortal_steps.store.identity import IDENTITY_FILE


def _say_nothing(text: str) -> None:
    pass


def settings(
    flow_run_id: UUID,
    config: RunConfig | None,
    config_file: str | None,
    overrides: Sequence[str],
    backend: str | None = None,
    say: Callable[[str], None] = _say_nothing,
) -> RunConfig:
    """The configuration of a flow run, with a run id of its own where it names none.

    A `config_file` goes before `config`, which a deployment may have as its default; `overrides`
    change either, and go before the `backend`. A flow run that has begun a run goes on with it,
    whatever the file says by now, and has this said. Raises `ConfigError`.
    """
    if backend is not None:
        overrides = [f"compute.backend={backend}", *overrides]
    if config_file is not None:
        chosen = load_config(Path(config_file), overrides)
    elif config is not None:
        chosen = override_config(config, overrides)
    else:
        raise ConfigError("this flow run has no configuration; set `config`, or `config_file`")
    if config_file is not None and chosen.run_id is None:
        chosen = _as_begun(flow_run_id, chosen, say)
    return chosen.model_copy(update={"run_id": run_id(flow_run_id, chosen)})


def _as_begun(flow_run_id: UUID, chosen: RunConfig, say: Callable[[str], None]) -> RunConfig:
    """What a file says that may have been edited since this flow run began a run with it; or what
    it said then, where it now makes another run."""
    runs_dir = Path(chosen.runs_dir)
    for identity in runs_dir.glob(f"*-{_end(flow_run_id)}/{IDENTITY_FILE}"):
        begun, run_id = find_run(runs_dir, identity.parent.name).config, identity.parent.name
        edited = changes(begun, chosen)
        if run_id != f"{chosen.name}-{_end(flow_run_id)}":
            edited.append(f"name is now {chosen.name!r}")
        if edited:
            say(
                f"the configuration was edited since run {run_id} began ({', '.join(edited)}); it "
                "goes on as it began, and the next run has the new one"
            )
            return begun.model_copy(update={"run_id": run_id, "runs_dir": chosen.runs_dir})
    return chosen


def run_name(flow_run_id: UUID, parameters: Mapping[str, Any]) -> str:
    """`grpo/<run id>`; where the parameters make no configuration, the flow run's own id, for then
    the flow says what is wrong with them."""
    config, file = parameters.get("config"), parameters.get("config_file")
    overrides, backend = parameters.get("overrides") or (), parameters.get("backend")
    try:
        chosen = settings(flow_run_id, config, file, overrides, backend)
    except MortalError:
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
    return f"{config.id_prefix}-{_end(flow_run_id)}"


def _end(flow_run_id: UUID) -> str:
    return flow_run_id.hex[-12:]
