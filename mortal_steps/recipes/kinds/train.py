"""`type = "train"`: a run, of any algorithm. The table of the stage is its configuration."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.config.field_metadata import with_numbers_of
from mortal_steps.config.trl_options import CONFIGS_OF_ROWS
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.open_run import follow_link
from mortal_steps.plan.loader import checked, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.algorithm import OF_COMPLETIONS
from mortal_steps.recipes.file import merged
from mortal_steps.recipes.identity import CODE_TABLES, parts_of
from mortal_steps.recipes.kinds.configured import (
    check_decided,
    wanted_at,
    with_names_of_stages,
    with_stand_ins,
)
from mortal_steps.recipes.references import MAIN, Reference
from mortal_steps.recipes.stages import Job, Output, OutputKind, Product, RunStage, Say, StandIns
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import Run, find_run
from mortal_steps.serving.whole import folder_of_trained
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.users_code.loading import is_in_file

AS_BEGUN = ("model", "data", *CODE_TABLES)
"""Tables that hold paths: those of a begun run count, since what is behind them is the same."""


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


LATER = "it is checked once {} has made its model"


def configuration(name: str, values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration in a stage's table. Raises `ConfigError` that names the stage."""
    return checked(parse_config(values, origin=f"stages.{name}"))


class TrainStage(RunStage):
    """A run."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {MAIN: "model", "run": "run"}
    is_configured: ClassVar[bool] = True

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        check_decided(name, values)
        super().__init__(name, {**values, "name": f"{recipe}-{name}"}, recipe)
        self._written = configuration(name, self.values)

    @classmethod
    def of_defaults(
        cls, defaults: Mapping[str, Any], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return them; without what is about completions for an algorithm that learns from rows."""
        algorithm = merged(_table(defaults, "algorithm"), _table(table, "algorithm"))
        if algorithm.get("type") not in CONFIGS_OF_ROWS:
            return defaults
        kept = {key: value for key, value in defaults.items() if key != "rewards"}
        if training := _table(kept, "training"):
            of_rows = {key: each for key, each in training.items() if key not in OF_COMPLETIONS}
            kept["training"] = of_rows
        return kept

    def wanted(self, reference: Reference) -> Sequence[OutputKind]:
        return wanted_at(self.name, reference)

    def parts(self) -> Any:
        # It decides where a run ends, and so which model it leaves.
        until = self._written.training.until.model_dump(mode="json", exclude_defaults=True)
        return {**parts_of(Plan(self._written)), **({"until": until} if until else {})}

    def written(self) -> RunConfig:
        return self._written

    def config(self, job: Job) -> RunConfig:
        values = with_names_of_stages(self.values, job.values(self.values))
        chosen = configuration(self.name, values)
        begun = self._begun(job)
        kept = {}
        if begun is not None:
            self._check_code(begun)
            for name in AS_BEGUN:
                kept[name] = with_numbers_of(getattr(chosen, name), getattr(begun.config, name))
        places = {"run_id": job.id, "runs_dir": str(job.runs_dir)}
        group = chosen.logging.group or job.recipe  # of the stages' runs, in trackers
        logs = chosen.logging.model_copy(update={"group": group})
        return chosen.model_copy(update={**kept, **places, "logging": logs})

    def check(self, stand_ins: StandIns, say: Say) -> None:
        with tempfile.TemporaryDirectory(prefix="mortal-") as scratch:
            values, unknown = with_stand_ins(self.values, stand_ins, Path(scratch))
            config = configuration(self.name, values)
            if unknown:
                of_data = unknown[0].key.startswith("data.")
                made = "its rows are checked once {} has made them" if of_data else LATER
                say(made.format(unknown[0].stage))
                return
            config = config.model_copy(update={"model": follow_link(config.model)})
            config = config.model_copy(update={"run_id": config.name}).with_own_seed()
            preflight.check(resolve_defaults(config), say=say)

    def has_begun(self, job: Job) -> bool:
        return self._begun(job) is not None

    def product(self, job: Job) -> Product | None:
        run = self._begun(job)
        if run is None or not run.is_complete():
            return None
        folder, sha256 = folder_of_trained(run)
        path, summary = os.path.relpath(folder, job.runs_dir.absolute()), summarize(run)
        return Product(
            recipe=job.recipe,
            stage=job.stage,
            job_id=job.id,
            outputs={
                MAIN: Output(kind="model", path=path, sha256=sha256),
                "run": Output(kind="run", path=job.id, sha256=run.info.uid),
            },
            inputs=job.inputs,
            metrics=dict(summary.eval),
            headline=summary.headline,
            made_at=run.manifest.updated_at,
        )

    def _check_code(self, begun: Run) -> None:
        """Raise `ConfigError` where code is gone with whose name the run goes on."""
        plan, start = Plan(begun.config).code, begun.working_dir()
        for spec in (*plan.scoring, *plan.training):
            file = start / Path(spec.rpartition(":")[0]).expanduser()
            if is_in_file(spec) and not file.is_file():
                raise ConfigError(
                    f"stages.{self.name}: its run was begun with {spec!r} and goes on with that "
                    f"name, but {file} is not there; name the file so again until the stage is "
                    f"complete, or remove {begun.store.root} to begin it anew"
                )

    def _begun(self, job: Job) -> Run | None:
        if not (Path(job.runs_dir) / job.id / IDENTITY_FILE).exists():
            return None
        return find_run(job.runs_dir, job.id)
