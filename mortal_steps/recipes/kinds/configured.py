"""What stages have in common whose table is a run's configuration."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.config.rewards import in_full
from mortal_steps.errors import ConfigError
from mortal_steps.recipes.references import Reference, find_reference, replaced
from mortal_steps.recipes.stages import NO_REFERENCE, OutputKind, StandIns

MODEL = "model.name_or_path"
MODEL_KEYS = ("model", "teacher", "tokenizer")
"""Last parts of the keys that name models beside it."""
OF_WEIGHTS = ("name_or_path", "revision", "new", "trust_remote_code")
"""Keys of `[model]` by which another stage's model is found; all others are how it is used there.
"""
TEACHERS = "algorithm.teachers."
OF_TEACHERS = re.compile(
    r"algorithm\.teachers\..+\.(revision|device|dtype|engine|engine_options\..+)"
)
"""Texts in the table of a teacher that name no model; all other keys may be a teacher's name."""
REWARDS = re.compile(r"(rewards|evaluation|evaluation\.sets\..+)\.functions(\[\d+\])?")
"""Keys of rewards in their short form, which may name a model."""
DECIDED = ("run_id", "runs_dir", "name")
"""Keys that the recipe decides."""


def check_decided(name: str, values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a key that a stage cannot have."""
    for key in DECIDED:
        if key in values:
            raise ConfigError(
                f"stages.{name}.{key} = {values[key]!r}: the recipe decides it; leave it out "
                "(runs_dir may stand at the top of the recipe)"
            )


def wanted_at(name: str, reference: Reference) -> Sequence[OutputKind]:
    """Return the kinds of outputs that may stand at a key of a run's configuration; raises
    `ConfigError` for a key that takes none."""
    key = reference.key
    table, _, _ = key.partition(".")
    last = key.rpartition(".")[2]
    if table == "data" and (last in ("source", "eval_source") or ".eval_sets." in key):
        return ("dataset", "folder")
    is_teacher = key.startswith(TEACHERS) and not OF_TEACHERS.fullmatch(key)
    if is_teacher or last in (*MODEL_KEYS, "name_or_path") or REWARDS.fullmatch(key):
        return ("model", "folder")
    raise ConfigError(f"stages.{name}.{key} = {str(reference)!r}: {NO_REFERENCE}")


def with_stand_ins(
    values: Mapping[str, Any], stand_ins: StandIns, scratch: Path
) -> tuple[dict[str, Any], Sequence[Reference]]:
    """Return a stage's table as it can be checked now: with the paths of outputs that exist, the
    model that another stage begins with in the place of what it will make of it, rows with the
    columns that a dataset will have, and a reward that scores nothing in the place of reward models
    that there are none of yet. Rows, and teachers that are new models, are written to `scratch`.
    Beside it, the references whose place stayed empty: datasets and models that nobody can tell
    anything of."""
    open_ones: list[Reference] = []
    models: dict[str, Mapping[str, Any] | None] = {}

    def answer(reference: Reference) -> Any:
        path = stand_ins.path(reference)
        if path is None and reference.key.startswith("data."):
            path = _rows(stand_ins.rows(reference), scratch / f"{reference.stage}.jsonl")
            if path is None:
                open_ones.append(reference)
        elif path is None and not reference.key.startswith(("rewards.", "evaluation.")):
            models[reference.key] = stand_ins.model(reference)
        return str(reference) if path is None else path

    whole: dict[str, Any] = replaced(values, answer)
    if MODEL in models and (begins_with := models[MODEL]) is not None:
        whole["model"] = with_model(whole["model"], begins_with)

    student = None if MODEL in models and models[MODEL] is None else whole.get("model", {})

    def beside(reference: Reference) -> Any:
        if reference.key not in models:
            return str(reference)
        found = models[reference.key]
        if found is None and reference.key.startswith("algorithm."):
            found = student  # whose tokens a teacher has
        if found is None:
            open_ones.append(reference)
            return str(reference)
        return _folder(found, scratch / reference.stage)

    whole = replaced(whole, beside)
    for table in ("rewards", "evaluation"):
        if table in whole:
            whole[table] = _known_rewards(whole[table])
    sets = whole.get("evaluation", {}).get("sets")
    if sets:
        known = {name: _known_rewards(each) for name, each in sets.items()}
        whole["evaluation"] = {**whole["evaluation"], "sets": known}
    return whole, open_ones


def with_model(own: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a model that begins as another stage's, with its own options."""
    same = {key: value for key, value in model.items() if key in OF_WEIGHTS}
    return {**same, **{key: value for key, value in own.items() if key != "name_or_path"}}


def with_names_of_stages(written: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return a stage's table, of which `values` has paths in the place of references, with reward
    models of other stages named after these; without a name, all would have that of the folder of a
    final model."""
    stages = [_stage_of(term) for term in _terms(written)]
    others = [term for term, stage in zip(_terms(written), stages, strict=True) if stage is None]
    taken = {str(term.get(key)).rpartition(":")[2] for term in others for key in NAMING}
    named = {
        number: stage
        for number, stage in enumerate(stages)
        if stage is not None and stage not in taken and stages.count(stage) == 1
    }
    if not named:
        return values
    found = [
        {"name": named[number], **term} if number in named else term
        for number, term in enumerate(_terms(values))
    ]
    rewards = {key: each for key, each in values["rewards"].items() if key not in SHORT}
    return {**values, "rewards": {**rewards, "terms": found}}


SHORT = ("functions", "weights")
"""Keys of `[rewards]` that are the short form of `terms`."""
NAMING = ("name", "type", "function")
"""Keys of a term that its name may come from."""


def _terms(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rewards of a table in full."""
    rewards = values.get("rewards", {})
    functions = rewards.get("functions") or ()
    functions = [functions] if isinstance(functions, str) else list(functions)
    weights = rewards.get("weights") or [1.0] * len(functions)
    short = zip(functions, weights, strict=True)
    full = [{**in_full(name), "weight": weight} for name, weight in short]
    return [*rewards.get("terms", ()), *full]


def _stage_of(term: Mapping[str, Any]) -> str | None:
    """Return the stage whose model a term is. In the short form it looks like a function."""
    for key in ("model", "function"):
        if (reference := find_reference(term.get(key), key)) is not None:
            return reference.stage
    return None


def _rows(rows: Sequence[Mapping[str, Any]] | None, file: Path) -> str | None:
    """Return the file with some rows; None where there are none."""
    if not rows:
        return None
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(file)


def _folder(model: Mapping[str, Any], scratch: Path) -> str:
    """Return the name or folder of a model; a new one is built in `scratch`."""
    config = ModelConfig.model_validate(model)
    if config.new is None:
        return config.name_or_path
    if not scratch.exists():
        # Imported where used: imports torch, and few recipes have such teachers.
        from transformers.utils.logging import disable_progress_bar

        from mortal_steps.policy.starting_model.new_model import build_model

        disable_progress_bar()
        build_model(scratch, config.new, seed=0)
    return str(scratch)


def _known_rewards(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with rewards without the models among them that there are none of yet. In the
    place of a term is one of the same name; in that of functions, if no others are left, one."""

    def is_known(value: Any) -> bool:
        return find_reference(value, "") is None

    found = dict(table)
    if "terms" in table:
        found["terms"] = [
            term if all(map(is_known, term.values())) else _in_place_of(term)
            for term in table["terms"]
        ]
    functions = table.get("functions") or ()
    functions = [functions] if isinstance(functions, str) else list(functions)
    if not all(map(is_known, functions)):
        found["functions"] = list(filter(is_known, functions)) or [ANY_REWARD]
        if table.get("weights") is not None:
            weights = zip(functions, table["weights"], strict=True)
            found["weights"] = [weight for name, weight in weights if is_known(name)] or [1.0]
    return found


def _in_place_of(term: Mapping[str, Any]) -> dict[str, Any]:
    unknown = next(value for value in term.values() if find_reference(value, "") is not None)
    kept = {key: term[key] for key in ("name", "weight") if key in term}
    return {"type": "function", "function": ANY_REWARD, "name": unknown, **kept}


ANY_REWARD = "mortal_steps.recipes.kinds.configured:no_score"
"""Takes the place of a reward model that does not exist yet."""


def no_score(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Score nothing: it is called once, while a recipe is checked."""
    return [0.0 for _ in completions]
