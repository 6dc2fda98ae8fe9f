"""The configuration and the run id that follow from the parameters of a flow run."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator

from mortal_steps.config.section import NAME
from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.plan.loader import (
    apply_override,
    load_config,
    override_config,
    parse_config,
    read_toml,
)
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.runs.run import find_run
from mortal_steps.store.identity import IDENTITY_FILE

FLOW_RUN = "grpo/"
"""How the names of flow runs begin where it is not known what they train."""


def plain_run_id(value: str) -> str:
    """Return a run's id as it is typed into a form, without the spaces and line ends around it."""
    run_id = value.strip()
    if not re.match(NAME, run_id):
        raise ValueError(
            f"{value!r} is no run's id, which consists of letters, digits, '.', '_' and '-'; "
            "`mortal runs` lists them"
        )
    return run_id


RunId = Annotated[str, AfterValidator(plain_run_id)]


def settings(
    flow_run_id: UUID,
    config: RunConfig | None,
    config_file: str | None,
    overrides: Sequence[str],
    backend: str | None = None,
) -> RunConfig:
    """Return the configuration of a flow run, with a run id; one is made if the parameters give
    none.

    `config_file` wins over `config`, which a deployment may have as its default. `backend` and
    `overrides` change either of them, and `overrides` win over `backend`. A flow run that has
    already begun a run continues it as it began, whatever has become of the file. Raises
    `ConfigError`.
    """
    if backend:
        overrides = [f"compute.backend={backend}", *overrides]
    if config_file is not None:
        begun = _begun(flow_run_id, _runs_dir(Path(config_file), overrides))
        if begun is not None:
            return begun
        chosen = load_config(Path(config_file), overrides)
    elif config is not None:
        chosen = override_config(config, overrides)
    else:
        raise ConfigError("this flow run has no configuration; set `config`, or `config_file`")
    named = chosen.run_id or run_id(flow_run_id, chosen.id_prefix)
    return chosen.model_copy(update={"run_id": named})


def _begun(flow_run_id: UUID, runs_dir: str) -> RunConfig | None:
    for identity in Path(runs_dir).glob(f"*-{_end(flow_run_id)}/{IDENTITY_FILE}"):
        run_id = identity.parent.name
        begun = find_run(Path(runs_dir), run_id).config
        return begun.model_copy(update={"run_id": run_id, "runs_dir": runs_dir})
    return None


def _runs_dir(file: Path, overrides: Iterable[str]) -> str:
    """As `overrides` or the file have it, whatever is wrong with the rest."""
    values: dict[str, Any] = {}
    with contextlib.suppress(ConfigError):
        values = {key: value for key, value in read_toml(file).items() if key == "runs_dir"}
    for override in overrides:
        if override.partition("=")[0].strip() == "runs_dir":
            apply_override(values, override)
    return parse_config(values).runs_dir


def run_name(flow_run_id: UUID, parameters: Mapping[str, Any]) -> str:
    """See `flow_run_of`. If the parameters make no configuration, the flow run's own id takes the
    place of the run's: the flow then reports what is wrong with them."""
    config, file = parameters.get("config"), parameters.get("config_file")
    overrides, backend = parameters.get("overrides") or (), parameters.get("backend")
    try:
        chosen = settings(flow_run_id, config, file, overrides, backend)
    except MortalError:
        return f"{FLOW_RUN}{flow_run_id}"
    return flow_run_of(chosen.algorithm.type, str(chosen.run_id))


def flow_run_of(algorithm: str, run_id: str) -> str:
    """Return the name of a run's flow runs: the algorithm and the run's id, such as `sft/<run id>`,
    with `grpo` for an algorithm of one's own."""
    return f"{algorithm}/{run_id}" if algorithm in ALGORITHMS else f"{FLOW_RUN}{run_id}"


def run_id(flow_run_id: UUID, prefix: str) -> str:
    """Return a run id that is made from the flow run's id, so that a Retry finds its run. Only the
    end of a flow run's id is used. The server schedules several flow runs at once, and the ids of
    these begin with the same time; only the end is random."""
    return f"{prefix}-{_end(flow_run_id)}"


def _end(flow_run_id: UUID) -> str:
    return flow_run_id.hex[-12:]
