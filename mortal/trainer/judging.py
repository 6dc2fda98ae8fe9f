"""Judges the finished model of a trainer's run, in a process of its own."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.data.held_out import read_held_out
from mortal_steps.orchestration.checking.own_rewards import own_rows
from mortal_steps.orchestration.trials.loss import loss_on_held_out
from mortal_steps.orchestration.trials.opening import judging_plan
from mortal_steps.promotion.judging import Judge
from mortal_steps.runs.run import find_run
from mortal_steps.serving.models import trained_model
from mortal_steps.serving.whole import whole_model


def evaluate(run_dir: Path, data: Mapping[str, Any]) -> dict[str, float]:
    """Score the run's model as `mortal promote` does, on its held-out problems or on those of these
    keys of `[data]`. Returns the mean of each score."""
    run = find_run(run_dir.parent, run_dir.name)
    problems = None
    if data:
        own = {"config": None, "eval_source": None, "eval_split": None, "eval_samples": 0}
        others = {**own, "eval_sets": dict[str, str](), **data}
        problems = read_held_out(
            run.config.data.model_copy(update=others),
            run.config.seed,
            may_lack_prompts=run.config.environment.gives_prompts,
            own_rows=own_rows(run.plan.environment),
        )
    plan = judging_plan(run.config, run.info.num_steps)
    judge = Judge(run.store, run, plan, problems=problems)
    model = whole_model(run, trained_model(run))
    os.chdir(run.working_dir())
    return dict(asyncio.run(judge.judge(model, run.store.folder_digest(model))).metrics)


def evaluate_rows(run_dir: Path) -> dict[str, float]:
    """Return the metrics of the run's held-out rows by its model, under TRL's names."""
    run = find_run(run_dir.parent, run_dir.name)
    trained_model(run)  # raises where there is none
    os.chdir(run.working_dir())
    metrics = loss_on_held_out(run)
    return {f"eval_{name.removeprefix('eval_')}": value for name, value in metrics.items()}
