"""The graph of a recipe: which stage takes what from which, and what can begin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest
from mortal_steps.recipes.file import RecipeConfig, merged
from mortal_steps.recipes.identity import code_digest
from mortal_steps.recipes.references import MAIN, Reference
from mortal_steps.recipes.stages import (
    Input,
    Job,
    Output,
    OutputKind,
    Product,
    RunStage,
    Stage,
    StandIns,
)
from mortal_steps.recipes.table import STAGES, TRAIN
from mortal_steps.users_code.loading import names_code

State = Literal["complete", "ready", "waits", "refused"]
"""`waits`: for a stage that it takes something from; `refused`: a gate that it comes after has not
let the model pass, so that it never begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """How a stage stands."""

    state: State
    job: Job | None
    """None while something that it takes is not there."""
    product: Product | None
    why: str = ""
    """What it waits for, or why it never begins."""


class Recipe:
    """The stages of a recipe, each after those that it takes something from."""

    def __init__(self, config: RecipeConfig) -> None:
        """Raises `ConfigError` for a stage that is unknown, of an unknown kind, or part of a
        circle, and for an output that there is not or that cannot stand where it does."""
        self.config = config
        self.runs_dir = Path(config.runs_dir)
        self.kinds = {name: str(table.get("type", TRAIN)) for name, table in config.stages.items()}
        """The `type` of each stage."""
        made = {name: self._stage(name, dict(table)) for name, table in config.stages.items()}
        for stage in made.values():
            for reference in stage.references:
                _check_reference(stage, reference, made)
        self.stages: Mapping[str, Stage] = {name: made[name] for name in _ordered(made)}

    @property
    def name(self) -> str:
        return self.config.name

    def _stage(self, name: str, table: dict[str, Any]) -> Stage:
        kind = table.pop("type", TRAIN)
        try:
            found: type[Stage] = STAGES.load(STAGES.check(str(kind)), f"stages.{name}.type")
        except ValueError as error:
            raise ConfigError(f"stages.{name}.type: {error}") from None
        table = merged(found.of_defaults(self.config.defaults, table), table)
        stage = found(name, table, self.name)
        stage.code = code_digest(str(kind)) if names_code(str(kind)) else None
        return stage

    def begins(self, begun: str) -> None:
        """Let stages that are made anew each time be known by this beginning (`Stage.begun`)."""
        for stage in self.stages.values():
            stage.begun = begun

    def parents(self, name: str) -> Sequence[str]:
        """Return the stages that a stage takes something from, each once."""
        return list(dict.fromkeys(each.stage for each in self.stages[name].references))

    def after(self, name: str) -> frozenset[str]:
        """Return the stages that a stage comes after, however far."""
        return frozenset(self.parents(name)).union(*map(self.after, self.parents(name)))

    def look(self) -> dict[str, Found]:
        """Return how each stage stands, in their order. Raises what the stages raise where a file
        that they begin with cannot be read."""
        found: dict[str, Found] = {}
        for name in self.stages:
            found[name] = self.look_at(name, found)
        return found

    def look_at(self, name: str, found: Mapping[str, Found]) -> Found:
        """Return how a stage stands, where those before it are known."""
        for parent in self.parents(name):
            if found[parent].state == "refused":
                return Found(state="refused", job=None, product=None, why=found[parent].why)
        products = {parent: found[parent].product for parent in self.parents(name)}
        missing = [parent for parent, product in products.items() if product is None]
        if missing:
            return Found(state="waits", job=None, product=None, why=f"after {', '.join(missing)}")
        stage, inputs = self.stages[name], list[Input]()
        for reference in stage.references:
            product = products[reference.stage]
            assert product is not None
            output = _output(stage, reference, self.stages[reference.stage])
            if output not in product.outputs:
                why = f"{reference.stage} has {product.headline}"
                return Found(state="refused", job=None, product=None, why=why)
            inputs.append(_input(reference, product, product.outputs[output]))
        job = self._job(stage, tuple(inputs))
        made = stage.product(job)
        return Found(state="ready" if made is None else "complete", job=job, product=made)

    def _job(self, stage: Stage, inputs: tuple[Input, ...]) -> Job:
        return Job(
            recipe=self.name,
            stage=stage.name,
            identity=stage.identity(inputs),
            inputs=inputs,
            runs_dir=self.runs_dir,
        )

    def stand_ins(self, name: str, found: Mapping[str, Found]) -> StandIns:
        """Return what a stage is checked with whose parents do not exist yet."""
        return _Ancestors(self, self.stages[name], found)


class _Ancestors(StandIns):
    def __init__(self, recipe: Recipe, stage: Stage, found: Mapping[str, Found]) -> None:
        self._recipe, self._stage, self._found = recipe, stage, found

    def path(self, reference: Reference) -> str | None:
        product = self._found[reference.stage].product
        if product is None:
            return None
        parent = self._recipe.stages[reference.stage]
        output = product.outputs.get(_output(self._stage, reference, parent))
        return None if output is None else str(self._recipe.runs_dir / output.path)

    def model(self, reference: Reference) -> Mapping[str, Any] | None:
        table = self._recipe.stages[reference.stage].model()
        if table is None:
            return None
        for before in self._recipe.stages[reference.stage].references:
            if before.key == "model.name_or_path":
                above = _Ancestors(self._recipe, self._recipe.stages[reference.stage], self._found)
                path = above.path(before)
                found = {"name_or_path": path} if path else above.model(before)
                if found is None:
                    return None
                own = {key: value for key, value in table.items() if key != "name_or_path"}
                return {**found, **own}
        return table

    def run(self, reference: Reference) -> RunStage | None:
        stage = self._recipe.stages[reference.stage]
        return stage if isinstance(stage, RunStage) else None

    def rows(self, reference: Reference) -> Sequence[Mapping[str, Any]] | None:
        return self._recipe.stages[reference.stage].rows()


def _input(reference: Reference, product: Product, output: Output) -> Input:
    return Input(key=reference.key, stage=reference.stage, made_by=product.job_id, output=output)


def _output(stage: Stage, reference: Reference, parent: Stage) -> str:
    """Return the name of the output that a reference stands for: without a name, the main one or,
    where another kind is wanted, the first of that kind."""
    if reference.output != MAIN:
        return reference.output
    wanted = stage.wanted(reference)
    fitting = [name for name, kind in parent.outputs.items() if kind in wanted]
    return MAIN if MAIN in fitting or not fitting else fitting[0]


def _check_reference(stage: Stage, reference: Reference, stages: Mapping[str, Stage]) -> None:
    where = f"stages.{stage.name}.{reference.key} = {str(reference)!r}"
    wanted, parent = stage.wanted(reference), stages.get(reference.stage)
    if parent is None:
        near = nearest(reference.stage, stages, cutoff=0.6)
        meant = f"did you mean {near}?" if near else f"there are {', '.join(stages)}"
        raise ConfigError(f"{where}: the recipe has no stage {reference.stage!r}; {meant}")
    if reference.output not in parent.outputs:
        named = ", ".join(f"{parent.name}/{name}" for name in parent.outputs if name)
        others = f"; it has {named}" if named else f"; write 'stage:{parent.name}'"
        raise ConfigError(
            f"{where}: stage {parent.name} has no output {reference.output!r}{others}"
        )
    kind = parent.outputs[_output(stage, reference, parent)]
    if kind not in wanted:
        raise ConfigError(
            f"{where}: a {_words(wanted)} belongs here, and stage {parent.name} produces a {kind}"
        )


def _words(kinds: Sequence[OutputKind]) -> str:
    return " or a ".join(kinds)


def _ordered(stages: Mapping[str, Stage]) -> list[str]:
    """Return the names, each after those that its stage takes something from; otherwise as they
    are written. Raises `ConfigError` for a circle."""
    ordered: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            raise ConfigError(
                f"stages.{name} takes something from itself, by way of {circle}; a recipe has no "
                "circles"
            )
        if name not in ordered:
            for reference in stages[name].references:
                visit(reference.stage, (*path, name))
            ordered.append(name)

    for name in stages:
        visit(name, ())
    return ordered


def only(recipe: Recipe, names: Sequence[str]) -> Recipe:
    """Return the recipe with these stages, and those that they come after. Raises `ConfigError` for
    a stage that there is not."""
    for name in names:
        if name not in recipe.stages:
            near = nearest(name, recipe.stages, cutoff=0.6)
            meant = f"did you mean {near}?" if near else f"there are {', '.join(recipe.stages)}"
            raise ConfigError(f"the recipe has no stage {name!r}; {meant}")
    kept = {each for name in names for each in (name, *recipe.after(name))}
    stages = {name: table for name, table in recipe.config.stages.items() if name in kept}
    return Recipe(recipe.config.model_copy(update={"stages": stages}))
