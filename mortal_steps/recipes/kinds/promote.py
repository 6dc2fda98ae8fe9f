"""`type = "promote"`: the gate before a model is put to use, decided by a threshold or a person."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from mortal_steps.config.section import NAME, LocalPath, Section
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.trials.opening import check_judged_here
from mortal_steps.plan.loader import override_config
from mortal_steps.plan.parts import Plan
from mortal_steps.promotion.gate import check_overrides
from mortal_steps.recipes.kinds.own_table import read_table
from mortal_steps.recipes.products import read_product, write_product
from mortal_steps.recipes.references import MAIN, Reference
from mortal_steps.recipes.stages import (
    GateSettings,
    GateStage,
    Job,
    Output,
    OutputKind,
    Product,
    Say,
    StandIns,
)
from mortal_steps.registry.registry import Decision, Registry
from mortal_steps.runs.run import find_run


class PromoteConfig(Section):
    """A stage with `type = "promote"`."""

    run: str
    """The stage whose model is to be put to use, such as `stage:grpo`."""
    name: str | None = Field(None, pattern=NAME)
    """Name to promote the model to; default: that of the recipe."""
    approval: Literal["person", "threshold"] = "person"
    """Who decides. A recipe that waits for a person holds no GPU."""
    min_gain: float = 0.0
    """With `threshold`: promote the model if its reward on the held-out problems is shown to be
    higher by more than this than that of the model in use."""
    overrides: tuple[str, ...] = ()
    """Changes to how the models are compared, such as `evaluation.num_generations=4`."""
    models_dir: LocalPath = "models"
    """Folder that holds the models in use."""


class PromoteStage(GateStage):
    """A gate."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {MAIN: "model"}

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        super().__init__(name, values, recipe)
        self._config = read_table(PromoteConfig, values, f"stages.{name}")
        if [reference.key for reference in self.references] != ["run"]:
            raise ConfigError(
                f"stages.{name}.run = {self._config.run!r}: name the stage that trains the model, "
                "such as 'stage:grpo'"
            )

    def wanted(self, reference: Reference) -> Sequence[OutputKind]:
        return ("run",) if reference.key == "run" else super().wanted(reference)

    def parts(self) -> Any:
        return self._config.model_dump(mode="json")

    def check(self, stand_ins: StandIns, say: Say) -> None:
        """Check that the models of the run can be compared as the gate would."""
        check_overrides(self._config.overrides)
        run = stand_ins.run(self.references[0])
        if run is None:
            return
        config = run.written()
        if not config.data.holds_out:
            raise ConfigError(
                f"stages.{self.name}.run = {self._config.run!r}: that stage has no held-out "
                "problems to compare models on; give it data.eval_samples, data.eval_split, "
                "data.eval_source or data.eval_sets"
            )
        try:
            check_judged_here(override_config(config, self._config.overrides))
        except ConfigError as error:
            raise ConfigError(f"stages.{self.name}: {error}") from None

    def computes(self, job: Job) -> Plan | None:
        """Judging takes the GPUs that the run's own evaluations took."""
        found = find_run(job.runs_dir, self.settings(job).run_id)
        return Plan(override_config(found.config, self._config.overrides))

    def settings(self, job: Job) -> GateSettings:
        run = next(each for each in job.inputs if each.key == "run")
        return GateSettings(
            run_id=run.made_by,
            name=self._config.name or job.recipe,
            models_dir=Path(self._config.models_dir),
            approval=self._config.approval,
            min_gain=self._config.min_gain,
            overrides=self._config.overrides,
        )

    def product(self, job: Job) -> Product | None:
        """Return what was decided. Where a person decides, an answer to `mortal promote` about this
        very model counts as well."""
        found = read_product(job)
        if found is not None or self._config.approval != "person":
            return found
        run = next(each for each in job.inputs if each.key == "run")
        settings = self.settings(job)
        registry = Registry(settings.models_dir.absolute(), settings.name)
        made = [
            each
            for each in registry.history()
            if each.action != "rolled back"
            and each.version.run_uid == run.output.sha256
            and not (each.request or "").startswith(f"{job.recipe}-{job.stage}-")
        ]
        return self._product(job, made[-1]) if made else None

    def decided(self, job: Job, decision: Decision) -> Product:
        product = self._product(job, decision)
        write_product(job, product)
        return product

    def _product(self, job: Job, decision: Decision) -> Product:
        settings, version = self.settings(job), decision.version
        path = settings.models_dir.absolute() / settings.name / version.path
        below = os.path.relpath(path, job.runs_dir.absolute())
        used = {MAIN: Output(kind="model", path=below, sha256=version.sha256)}
        return Product(
            recipe=job.recipe,
            stage=job.stage,
            job_id=job.id,
            outputs=used if decision.action == "promoted" else {},
            inputs=job.inputs,
            headline=f"{decision.action} by {decision.by}: {decision.why}".rstrip(": "),
            made_at=decision.at,
        )
