"""What stages have in common that sample with a model, with the settings of a run."""

import dataclasses
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from mortal_steps.config import TrainingConfig
from mortal_steps.environments.plan import ProblemsPlan
from mortal_steps.orchestration.checking.checks import check_rows
from mortal_steps.orchestration.checking.reward_calls import (
    DRY_RUN_PROBLEMS,
    check_rewards,
    check_something_scores,
)
from mortal_steps.orchestration.trials.environment_trial import check_resets
from mortal_steps.orchestration.trials.opening import passing_workers, settings_of_trial
from mortal_steps.orchestration.trials.scoring import ModelScoring
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.recipes.identity import parts_of
from mortal_steps.recipes.kinds.configured import (
    MODEL,
    wanted_at,
    with_names_of_stages,
    with_stand_ins,
)
from mortal_steps.recipes.products import MadeStage
from mortal_steps.recipes.references import Reference
from mortal_steps.recipes.stages import Job, OutputKind, Say, StandIns
from mortal_steps.types import Problem, RewardFailure, SamplingParams

OF_TRAINING = ("algorithm", "selection", "checkpoints", "retention")
"""Tables of a run that these stages do without: a recipe's defaults may have them."""
USED = ("batch_size", "max_completion_length", "trl")
"""Keys of `[training]` that decide how these stages sample."""
TEMPLATE = "chat_template_kwargs"
"""The option of TRL's that does."""
DECIDING = ("seed", "model", "data", "rewards", "environment", "rollout")
"""What of a run's configuration decides what they produce, beside what follows from the rest."""


class SampledStage(MadeStage):
    """A stage whose table is a run configuration, of which it uses what samples and scores."""

    is_configured: ClassVar[bool] = True
    without: ClassVar[tuple[str, ...]] = ()
    """Further tables that it does without."""
    judges: ClassVar[bool] = False
    """Whether it scores with the rewards of evaluations."""

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        super().__init__(name, values, recipe)
        written = parse_config(self._of_run(values), f"stages.{name}")
        self.plan = Plan(written.for_evaluation() if self.judges else written)
        """That of its table as it is written."""

    @classmethod
    def of_defaults(
        cls, defaults: Mapping[str, Any], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return cls._of_run(defaults)

    def wanted(self, reference: Reference) -> Sequence[OutputKind]:
        if reference.key == MODEL or reference.key.startswith(("rewards.", "evaluation.")):
            return wanted_at(self.name, reference)
        if reference.key.startswith("data."):
            return ("dataset",)
        return super().wanted(reference)

    def computes(self, job: Job) -> Plan | None:
        return self.plan_here(job)

    def parts(self) -> Any:
        found, sampling = parts_of(self.plan), self.plan.sampling
        return {
            **found,
            "config": {name: found["config"].get(name) for name in DECIDING},
            "sampling": dataclasses.asdict(sampling.training),
            "evaluated": [dataclasses.asdict(sampling.evaluation), sampling.num_evaluated],
            "template": self.plan.sampler.template_options,
            "shards": [sampling.num_shards, sampling.problems_per_shard],
        }

    @abstractmethod
    def problems(self, plan: ProblemsPlan) -> list[Problem]:
        """Return the problems that are sampled. Raises `DataError`."""

    def plan_here(self, job: Job) -> Plan:
        """Return the plan for this machine, with paths in the place of references."""
        values = self._of_run(with_names_of_stages(self.values, job.values(self.values)))
        values |= {"runs_dir": str(job.runs_dir), "run_id": job.id}
        config = settings_of_trial(parse_config(values, f"stages.{self.name}").with_own_seed())
        return Plan(config.for_evaluation() if self.judges else config)

    async def score(
        self,
        plan: Plan,
        problems: Sequence[Problem],
        sampling: SamplingParams,
        work: Path,
        say: Say,
        *,
        count: int,
        bounds: Sequence[tuple[int, int]],
        stage: Literal["generate", "evaluate"] = "generate",
    ) -> tuple[ModelScoring, Path]:
        """Sample and score `count` completions of each problem, and return what reads them from the
        folder in `work` that they are in. Another machine may deal them out otherwise; it begins
        anew."""
        scoring = ModelScoring(
            *(plan.workers, problems, sampling),
            num_generations=count,
            bounds=bounds,
            stage=stage,
        )
        path, sha256 = scoring.starting_model()
        folder = work / scoring.key(sha256, [stage, count, list(bounds)])
        say(f"sampling {len(problems):,} problems, {count} completions of each")
        await scoring.score(
            folder, path, lambda done, of: say(f"{done:,} of {of:,} completions are scored")
        )
        return scoring, folder

    def check(self, stand_ins: StandIns, say: Say) -> None:
        with tempfile.TemporaryDirectory(prefix="mortal-") as scratch:
            written = self._of_run(self.values)
            values, unknown = with_stand_ins(written, stand_ins, Path(scratch))
            config = parse_config(values, f"stages.{self.name}").with_own_seed()
            has_model = all(each.key != MODEL for each in unknown)
            config = settings_of_trial(config) if has_model else config
            # What an environment gives of itself, which that adds, is of training's rewards.
            config = config.for_evaluation() if self.judges else config
            if any(each.key.startswith("data.") for each in unknown):
                return
            say("reading the dataset")
            plan = Plan(config)
            problems = self.problems(plan.problems)
            check_rows(config.environment, problems)
            check_something_scores(config.rewards, config.environment, problems[0])
            if has_model:
                say("calling the reward functions with a made-up completion")
                check_rewards(passing_workers(plan.workers)["reward"], problems)
            if config.environment.is_used and not config.environment.asks:
                tried = problems[:DRY_RUN_PROBLEMS] if config.rewards.dry_run else []
                say(f"beginning episodes of {len(tried)} rows")
                check_resets(plan.environment, tried)

    @classmethod
    def _of_run(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tables without what is about training alone. Unknown keys stay, and are
        refused."""
        left_out = (*OF_TRAINING, *cls.without)
        kept = {name: value for name, value in values.items() if name not in left_out}
        if isinstance(training := kept.get("training"), Mapping):
            idle = TrainingConfig.model_fields.keys() - USED
            used = {key: value for key, value in training.items() if key not in idle}
            if isinstance(trl := used.get("trl"), Mapping):
                used["trl"] = {key: value for key, value in trl.items() if key == TEMPLATE}
            kept["training"] = used
        if isinstance(model := kept.get("model"), Mapping):
            # What is sampled is a whole model.
            kept["model"] = {key: value for key, value in model.items() if key != "quantization"}
        return kept


def failed_scores(failures: Sequence[RewardFailure]) -> str:
    """Return a sentence on completions that could not be scored, as while a judge is away; empty
    where there are none."""
    if not failures:
        return ""
    masked, first = sum(each.num_completions for each in failures), failures[0]
    return (
        f". {masked:,} could not be scored: {first.function} failed: {first.message}. If that is "
        "mended, `mortal resume` scores them again"
    )
