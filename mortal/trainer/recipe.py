"""A recipe in Python: stages that begin with what other stages produce.

recipe = mortal.Recipe("letters")
sft = recipe.train("sft", mortal.SFTTrainer(model="Qwen/Qwen2.5-0.5B", train_dataset=rows))
rm = recipe.train("rm", mortal.RewardTrainer(model=sft.model, train_dataset=pairs))
grpo = recipe.train(
    "grpo",
    mortal.MortalTrainer(model=sft.model, reward_funcs=[rm.model, exact], train_dataset=prompts),
)
recipe.promote("gate", grpo, approval="threshold")
recipe.run()
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mortal.trainer.controls import RunControls
from mortal.trainer.face import RUNS_DIR, checked_runs_dir, flat
from mortal.trainer.owner import perform
from mortal.trainer.result import TrainingResult
from mortal_steps.config.section import values_in
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import write_key
from mortal_steps.recipes.file import RecipeConfig, merged, parse_recipe
from mortal_steps.recipes.kinds.configured import DECIDED
from mortal_steps.recipes.recipe import Found
from mortal_steps.recipes.recipe import Recipe as Graph
from mortal_steps.recipes.record import RecipeFolder, RecipeRecord
from mortal_steps.runs.objects import is_object


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutputs:
    """What a stage will have produced, as parameters of later stages take it."""

    name: str
    """Of the stage."""

    @property
    def model(self) -> str:
        """The trained model, for `model=` and `reward_funcs=`; of a gate, the one that is in
        use."""
        return f"stage:{self.name}"

    @property
    def dataset(self) -> str:
        """The rows, for `train_dataset=`."""
        return f"stage:{self.name}"

    def output(self, name: str) -> str:
        """Return an output by its name."""
        return f"stage:{self.name}/{name}"


class Recipe:
    """Stages by name, run as one durable pipeline. What is complete is not made again."""

    def __init__(
        self,
        name: str,
        *,
        limits: Mapping[str, Any] | None = None,
        runs_dir: str | Path = RUNS_DIR,
    ) -> None:
        """Begin an empty recipe.

        Args:
            name: What its runs are named after.
            limits: As in `[limits]`, such as `{"gpus": 2}`: what stages take side by side.
            runs_dir: Folder of all runs; that of the trainers does not count.

        Raises `ConfigError`.
        """
        self._name, self._limits = name, dict(limits or {})
        self._runs_dir = checked_runs_dir(runs_dir, "Recipe")
        self._stages: dict[str, dict[str, Any]] = {}

    def train(self, name: str, trainer: RunControls) -> StageOutputs:
        """Add a stage that is the run of a trainer, whose `train()` is not called. Where its model
        or dataset is that of another stage, it begins with what that stage has produced."""
        return self._add(name, self._table(name, trainer))

    def sample(
        self, name: str, trainer: RunControls, config: Mapping[str, Any] | None = None, **keys: Any
    ) -> StageOutputs:
        """Add a stage that samples from the model of a trainer, with its dataset and its rewards,
        and keeps the best completions as rows. `keys` are those of `sample` in docs/recipes.md,
        such as `completions=16, keep="best"`; `config` has other keys of the stage."""
        table = {**self._table(name, trainer), "type": "sample", "sample": keys}
        return self._add(name, merged(table, _nested(config)))

    def function(self, name: str, call: str, **arguments: Any) -> StageOutputs:
        """Add a stage that calls a function, named as `file.py:name` or `module:name`, with these
        arguments and a folder `out` to fill."""
        return self._add(name, {"type": "function", "call": call, **_plain(arguments)})

    def promote(
        self,
        name: str,
        stage: StageOutputs,
        *,
        approval: Literal["person", "threshold"] = "person",
        min_gain: float = 0.0,
        **keys: Any,
    ) -> StageOutputs:
        """Add a gate: the model of a stage is put to use if a person or a threshold says so."""
        decides = {"approval": approval, "min_gain": min_gain, **keys}
        return self._add(name, {"type": "promote", "run": stage.model, **decides})

    def stage(self, name: str, kind: str, **keys: Any) -> StageOutputs:
        """Add a stage of any kind, with the keys of its table."""
        return self._add(name, {"type": kind, **_plain(keys)})

    @property
    def config(self) -> RecipeConfig:
        """The recipe as a file has it. Raises `ConfigError`."""
        values = {
            "name": self._name,
            "runs_dir": self._runs_dir,
            "limits": self._limits,
            "stages": self._stages,
        }
        return parse_recipe(values, origin=f"Recipe({self._name!r})")

    def plan(self) -> dict[str, Found]:
        """Return how each stage stands: complete, ready to begin, or waiting for another."""
        return Graph(self.config).look()

    def run(self, only: Sequence[str] = ()) -> dict[str, TrainingResult]:
        """Make every stage that is not complete, or `only` these and those that they begin with.
        Return the results of the stages that are runs.

        Called again, it goes on where it was: after an error, a Ctrl-C or a lost machine. Raises
        the `MortalError` that ended a stage, once no other can go on, and `KeyboardInterrupt` after
        a Ctrl-C has stopped the stages in order.
        """
        Graph(self.config)
        plain = parse_recipe(self.config.model_dump(mode="json"))  # tables that can be pickled
        perform("recipe", config=plain, only=list(only), goes_on=True)
        return self.results()

    def results(self) -> dict[str, TrainingResult]:
        """Return the results so far of the stages that are runs, and have begun."""
        record, runs_dir = self.record(), Path(self._runs_dir)
        found = record.stages.items() if record else ()
        return {
            name: TrainingResult(runs_dir / each.job_id)
            for name, each in found
            if each.job_id is not None and (runs_dir / each.job_id / "run.json").exists()
        }

    def record(self) -> RecipeRecord | None:
        """Return how its stages stood when it was last run; None before that."""
        return RecipeFolder(Path(self._runs_dir), self._name).read()

    def _table(self, name: str, trainer: RunControls) -> dict[str, Any]:
        """Return the table of a stage. Raises `ConfigError` where the trainer has written objects
        into another folder of runs, in which they count as unused."""
        table: dict[str, Any] = trainer.config.model_dump(mode="json", exclude_unset=True)
        for key in DECIDED:
            table.pop(key, None)
        own, has_objects = trainer.config.runs_dir, any(map(_is_object, values_in(table)))
        if own != self._runs_dir and has_objects:
            raise ConfigError(
                f"stage {name}: the trainer has written its objects below {own!r} (its runs_dir, "
                f"or output_dir in args), and the runs of the recipe are in {self._runs_dir!r}; "
                f"write Recipe(..., runs_dir={own!r}), or give the trainer that folder"
            )
        return table

    def _add(self, name: str, table: dict[str, Any]) -> StageOutputs:
        if name in self._stages:
            raise ConfigError(f"the recipe has a stage {name!r} already; choose another name")
        self._stages[name] = table
        return StageOutputs(name=name)


def _is_object(pair: tuple[str, Any]) -> bool:
    return isinstance(pair[1], str) and is_object(pair[1])


def _nested(config: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flat(config or {}):
        write_key(found, key, value)
    return found


def _plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys with the outputs of stages, and paths, as they are written in a file."""
    return {key: _written(value) for key, value in keys.items()}


def _written(value: Any) -> Any:
    if isinstance(value, StageOutputs):
        return value.model
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _written(each) for name, each in value.items()}
    return [_written(each) for each in value] if isinstance(value, list | tuple) else value
