"""A recipe as it is written: a TOML of stages, with their defaults and limits."""

import copy
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from mortal_steps.config.plain_words import in_plain_words
from mortal_steps.config.section import NAME, LocalPath, Section
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest
from mortal_steps.plan.loader import apply_override, read_toml

STAGES = "stages"
"""The table that makes a TOML file a recipe."""
StageName = Annotated[str, StringConstraints(pattern=NAME)]


class LimitsConfig(Section):
    """`[limits]`: what stages that run side by side may take together."""

    gpus: int | None = Field(None, ge=0)
    """GPUs of this machine; default: all of them."""
    cpu_stages: int = Field(1, ge=1)
    """Stages at once that compute on this machine without a GPU."""
    max_cost: float | None = Field(None, gt=0)
    """Dollars that the stages may take together, with those that earlier attempts took. A stage on
    Modal gets what is left as its `compute.modal.max_cost`, and the recipe stops where nothing
    is."""


class RecipeConfig(Section):
    """A recipe, whole: the keys of a file and `--set`, with the files of stages read."""

    name: str = Field(pattern=NAME)
    """What its runs are named after: `<name>-<stage>-<digits>`."""
    runs_dir: LocalPath = "runs"
    """Folder that holds all runs, and what belongs to recipes."""
    limits: LimitsConfig = LimitsConfig()
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Tables of a run's configuration that each stage has, unless it has its own."""
    stages: dict[StageName, dict[str, Any]] = Field(min_length=1)
    """The stages by name. `type` says what a stage is (docs/recipes.md); all other keys are those
    of the kind. `config` names a file with more keys; those that stand here count."""


def read_recipe(path: Path, overrides: Iterable[str] = ()) -> RecipeConfig:
    """Return the recipe in a file, with `--set` overrides such as `stages.sft.seed=1`. Raises
    `ConfigError` that names the key, the value and the remedy."""
    values, changes = read_toml(path), list(overrides)
    for change in changes:
        _check_stage(change, tuple(values.get(STAGES, ())))
        apply_override(values, change)
    values.setdefault("name", path.stem)
    origin = f"{path} and the command line" if changes else str(path)
    return parse_recipe(with_files(values, path), origin)


def override_recipe(config: RecipeConfig, overrides: Iterable[str]) -> RecipeConfig:
    """Return the recipe with `key=value` overrides applied; raises `ConfigError`."""
    changes = list(overrides)
    if not changes:
        return config
    values = config.model_dump(mode="json", exclude_none=True)
    for change in changes:
        _check_stage(change, tuple(config.stages))
        apply_override(values, change)
    return parse_recipe(values, origin="overrides")


def parse_recipe(values: Mapping[str, Any], origin: str = "recipe") -> RecipeConfig:
    """Plain nested values as a recipe; raises `ConfigError`."""
    try:
        return RecipeConfig.model_validate(values)
    except ValidationError as error:
        lines = [f"  {_explain(detail)}" for detail in error.errors()]
        raise ConfigError("\n".join([f"{origin}:", *lines])) from None


def with_files(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the values with the files that stages name as `config` read into their tables."""
    whole = copy.deepcopy(dict(values))
    given = whole.get(STAGES)
    stages = given if isinstance(given, dict) else dict[str, Any]()
    for name, table in stages.items():
        if isinstance(table, dict) and (named := table.pop("config", None)) is not None:
            file = Path(str(named)).expanduser()
            beside = path.parent / file
            if not file.exists() and beside.exists():
                raise ConfigError(
                    f"stages.{name}.config = {named!r}: paths start in the working folder, "
                    f"{Path.cwd()}, which has no such file; write {str(beside)!r}"
                )
            stages[name] = merged(read_toml(file), table)
    return whole


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of `below` with the keys of `above` in them, which win; lists are whole."""
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        found[key] = merged(under, value) if both else value  # type: ignore[arg-type]
    return found


def _check_stage(override: str, known: Collection[str]) -> None:
    """Raise `ConfigError` for an override of a stage that the recipe does not have: it would make
    one."""
    keys = override.partition("=")[0].strip().split(".")
    if keys[0] != STAGES or len(keys) == 1 or keys[1] in known:
        return
    near = nearest(keys[1], known, cutoff=0.6)
    meant = f"; did you mean {near}?" if near else f"; it has {', '.join(known)}"
    raise ConfigError(f"--set {override!r}: the recipe has no stage {keys[1]!r}{meant}")


def _explain(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with a key, in a line."""
    key = ".".join(str(part) for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        *table, name = detail["loc"]
        section = LimitsConfig if table == ["limits"] else RecipeConfig
        near = nearest(str(name), section.model_fields, cutoff=0.6)
        known = ", ".join(section.model_fields)
        meant = f"did you mean {near}?" if near else f"known keys here: {known}"
        of_runs = "" if table else "; what all stages have in common stands in [defaults]"
        return f"{key}: unknown key; {meant}{of_runs}"
    if detail["type"] == "missing":
        return f"{key}: is not there; a recipe needs it"
    return f"{key} = {detail['input']!r}: {in_plain_words(str(detail['msg']))}"
