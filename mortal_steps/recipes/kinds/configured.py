"""What stages have in common whose table is a run's configuration."""

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import checked, parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.recipes.references import Reference, replaced
from mortal_steps.recipes.stages import OutputKind, StandIns

MODEL_KEYS = ("model", "teacher", "tokenizer")
"""Last parts of the keys that name models beside `model.name_or_path`."""
DECIDED = ("run_id", "runs_dir", "name")
"""Keys that the recipe decides."""


def configuration(name: str, values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in a stage's table. Raises `ConfigError` that names the stage."""
    return checked(parse_config(values, origin=f"stages.{name}"))


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
    table, _, _ = reference.key.partition(".")
    last = reference.key.rpartition(".")[2]
    if table == "data" and (last in ("source", "eval_source") or ".eval_sets." in reference.key):
        return ("dataset", "folder")
    if reference.key == "model.name_or_path" or last in (*MODEL_KEYS, "name_or_path"):
        return ("model", "folder")
    raise ConfigError(
        f"stages.{name}.{reference.key} = {str(reference)!r}: nothing of another stage can stand "
        "here; name a file or folder"
    )


def with_stand_ins(
    values: Mapping[str, Any], stand_ins: StandIns
) -> tuple[dict[str, Any], Sequence[Reference]]:
    """Return a stage's table as it can be checked now: with the paths of outputs that exist, the
    model that another stage begins with in the place of what it will make of it, and without the
    reward models that there are none of yet. Beside it, the references whose place stayed empty:
    datasets that nobody can tell anything of."""
    missing: list[Reference] = []

    def answer(reference: Reference) -> Any:
        path = stand_ins.path(reference)
        if path is None:
            missing.append(reference)
        return str(reference) if path is None else path

    whole: dict[str, Any] = replaced(values, answer)
    open_ones: list[Reference] = []
    for reference in missing:
        if reference.key == "model.name_or_path":
            _begin_as(whole, stand_ins.model(reference))
        elif reference.key.startswith("rewards.terms["):
            _leave_out(whole, reference)
        else:
            open_ones.append(reference)
    return whole, open_ones


def _begin_as(values: dict[str, Any], model: Mapping[str, Any] | None) -> None:
    """Let the table begin with another stage's model, with its own options."""
    own = {key: value for key, value in values["model"].items() if key != "name_or_path"}
    values["model"] = {**(model or {}), **own}


def _leave_out(values: dict[str, Any], reference: Reference) -> None:
    """Take the reward out whose model there is none of yet; the last one makes room for another."""
    terms = values["rewards"]["terms"]
    kept = [term for term in terms if str(reference) not in map(str, term.values())]
    rewards = {**values["rewards"], "terms": kept}
    if not kept and not rewards.get("functions"):
        rewards["functions"] = [ANY_REWARD]
    values["rewards"] = rewards


ANY_REWARD = "mortal_steps.recipes.kinds.configured:no_score"
"""Takes the place of a reward model that does not exist yet."""


def no_score(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Score nothing: it is called once, while a recipe is checked."""
    return [0.0 for _ in completions]
