"""The process that drives a run for a `MortalTrainer`: `python -m mortal.trainer.process`.

It reads a pickled `Request` from its standard input, and writes a pickled `Answer` to a descriptor
of its own. The end of its input means that its owner has ended, and has the effect of a Ctrl-C.
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system.asked import answer_once
from mortal_steps.system.frames import Request
from mortal_steps.system.streams import let_go_of_terminals


def train(config: RunConfig) -> None:
    from mortal.driver import drive

    drive(config)


def detach(config: RunConfig) -> str:
    """Let a container on Modal drive the run; returns the id of the call."""
    from mortal.remote.detach import detach as begin_detached

    return begin_detached(config)


def evaluate(run_dir: Path, data: Mapping[str, Any]) -> dict[str, float]:
    """Score the run's model as `mortal promote` does, on its held-out problems or on those of these
    keys of `[data]`. Returns the mean of each score."""
    import asyncio

    from mortal_steps.data.held_out import read_held_out
    from mortal_steps.orchestration.checking.own_rewards import own_rows
    from mortal_steps.orchestration.trials.opening import judging_plan
    from mortal_steps.promotion.judging import Judge
    from mortal_steps.runs.run import find_run
    from mortal_steps.serving.models import trained_model, whole_model

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
    from mortal_steps.orchestration.trials.loss import loss_on_held_out
    from mortal_steps.runs.run import find_run
    from mortal_steps.serving.models import trained_model

    run = find_run(run_dir.parent, run_dir.name)
    trained_model(run)  # raises where there is none
    os.chdir(run.working_dir())
    metrics = loss_on_held_out(run)
    return {f"eval_{name.removeprefix('eval_')}": value for name, value in metrics.items()}


def recipe(config: Mapping[str, Any], only: list[str]) -> None:
    """Make the stages of a recipe that are not complete; what an earlier call has begun goes on."""
    from mortal.drive_recipe import drive_recipe
    from mortal_steps.recipes.file import parse_recipe

    drive_recipe(parse_recipe(config), only, goes_on=True)


ACTIONS: dict[str, Callable[..., Any]] = {
    "train": train,
    "detach": detach,
    "evaluate": evaluate,
    "evaluate_rows": evaluate_rows,
    "recipe": recipe,
}


def main() -> None:
    """Perform the request. The exit code is 0 whenever an answer was written."""
    answer_once(_perform)


def _perform(request: Request) -> Any:
    from mortal.terminal.output import warn_in_plain_lines

    threading.Thread(target=_watch_owner, daemon=True).start()
    warn_in_plain_lines()
    return ACTIONS[request.method](**request.payload)


def _watch_owner() -> None:
    """Interrupt this process when its input ends. `sys.stdin` would hold a lock that an ending
    interpreter waits for, so the descriptor is read itself."""
    while os.read(0, 1):
        pass
    let_go_of_terminals()
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
