"""`train`, `demo`, `resume`, `stop`, `fork`: the commands that drive a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mortal.cli.arguments import (
    Overrides,
    RunId,
    RunsDir,
    Trust,
    Volume,
    WhereRunsGo,
    is_recipe_file,
    override_option,
    place_of_run,
    split_run,
    with_flags,
)
from mortal.terminal.output import checking, say, tell
from mortal_steps.errors import ConfigError
from mortal_steps.runs.argument import names_recipe, run_argument

Detach = Annotated[
    bool,
    typer.Option("--detach", help="Run the flow in a container on Modal and return at once."),
]

AcceptChangedRewards = Annotated[
    bool,
    typer.Option(
        "--accept-changed-rewards",
        help="Continue with the edited reward functions, environments, algorithm, engine, episodes "
        "or batch source; the run records from which step.",
    ),
]


ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration file, such as those in deployments/configs, or a recipe, which has a "
        "table of stages. Default: train Qwen2.5-0.5B-Instruct to write programs, on 128 problems "
        "from the hub.",
    ),
]


@with_flags
def train(
    context: typer.Context,
    config: ConfigFile = None,
    overrides: Overrides = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Id of the run; that of an existing run continues it."),
    ] = None,
    runs_dir: WhereRunsGo = None,
    accept_changed_rewards: AcceptChangedRewards = False,
    detach: Detach = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check everything and show which GPU each worker takes and the memory that each "
            "needs; make no run.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="For a recipe: make only this stage and the stages that it depends on. May be "
            "repeated.",
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Train a model as a configuration file and flags describe, or all stages of a recipe.

    Each flag in the panels below the first sets the configuration key in parentheses; --set sets
    any other key.
    """
    checking(f"reading {config or 'the command line'}")
    changes = place_of_run(run_id, runs_dir, overrides or (), context)
    if config is not None and is_recipe_file(config):
        from mortal.cli.recipes import train_recipe

        given = {**flags, "run_id": run_id, "detach": detach or None}
        folder = changes.get("runs_dir")
        train_recipe(config, overrides or (), only or (), folder, given, dry_run=dry_run)
        return
    if only:
        raise ConfigError("--only is for the stages of a recipe, a TOML file with [stages]")
    from mortal_steps.plan.loader import load_config
    from mortal_steps.runs.run import new_run_id

    settings = load_config(config, overrides or (), flags)
    if run_id is None:
        run_id = settings.run_id or new_run_id(settings.id_prefix)
    settings = settings.model_copy(update={**changes, "run_id": run_id})
    if accept_changed_rewards:
        from mortal_steps.orchestration import open_run

        settings = open_run.accept_changed_rewards(settings)
    if dry_run:
        from mortal_steps.orchestration.open_run import rehearse

        rehearse(settings, checking, tell)
        return
    if detach:
        from mortal.remote.detach import detach as begin_detached

        _tell_detached(begin_detached(settings), run_id, settings.compute.modal.volume)
        return
    from mortal.driver import drive

    drive(settings)


def demo(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for its configuration and rows.")
    ] = Path("mortal-demo"),
    overrides: Overrides = None,
    runs_dir: WhereRunsGo = None,
) -> None:
    """Train a small model to reverse three letters: a first run, on a CPU, without downloads.

    Writes FOLDER/demo.toml and the rows of data, as a template for your own, and trains.
    """
    from mortal.demo import write_demo
    from mortal.driver import drive
    from mortal_steps.plan.loader import load_config
    from mortal_steps.runs.run import new_run_id

    config = write_demo(folder)
    settings = load_config(config, overrides or ())
    run_id = settings.run_id or new_run_id(settings.id_prefix)
    changes = place_of_run(None, runs_dir, overrides or (), context)
    settings = settings.model_copy(update={**changes, "run_id": run_id})
    drive(settings)
    say("next: read what the model wrote in the last step, and train again with a change")
    say(f"  mortal samples {run_argument(Path(settings.runs_dir, run_id))}")
    say(f"  mortal train {config} --set training.learning_rate=3e-4")


def resume(
    run_id: RunId,
    overrides: Annotated[
        list[str] | None,
        override_option(
            help="Change, for this call only, a setting that does not affect the run's numbers, "
            "such as compute.modal.max_cost=30. May be repeated.",
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    accept_changed_rewards: AcceptChangedRewards = False,
    detach: Detach = False,
    trust: Trust = False,
) -> None:
    """Continue a run that ended early; what it has already generated is reused.

    For a recipe, make the stages that are not complete.
    """
    checking(f"looking at run {run_id}")
    runs_dir, run_id = split_run(run_id, runs_dir)
    if names_recipe(runs_dir, run_id):
        from mortal.cli.recipes import resume_recipe

        resume_recipe(runs_dir, run_id, overrides or ())
        return
    from mortal_steps.orchestration.open_run import resume_config

    settings = resume_config(runs_dir, run_id, overrides or (), volume=volume, trust=trust)
    if accept_changed_rewards:
        from mortal_steps.orchestration import open_run

        settings = open_run.accept_changed_rewards(settings)
    if detach:
        from mortal.remote.detach import detach as begin_detached

        _tell_detached(begin_detached(settings), run_id, settings.compute.modal.volume)
        return
    from mortal.driver import drive

    drive(settings)


def stop(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    timeout_s: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the run to end.")
    ] = 600,
) -> None:
    """Stop a run cleanly, as Ctrl-C does: save its state, then end its workers.

    For a recipe, stop the stages that are running.

    If you call this a second time, a run on this machine stops at once.
    """
    from mortal.stopping import stop_local, stop_recipe, stop_remote

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is None and names_recipe(runs_dir, run_id):
        status = stop_recipe(runs_dir, run_id, timeout_s)
        say(f"{run_id}: {status}")
        raise typer.Exit(0 if status in ("stopped", "completed") else 1)
    if volume is not None:
        ended = stop_remote(volume, run_id, timeout_s)
    else:
        ended = stop_local(runs_dir, run_id, timeout_s)
    say(f"{run_id}: {ended.status}, step {ended.step} of {ended.max_steps}")
    if ended.error:
        say(ended.error)
    raise typer.Exit(0 if ended.status in ("stopped", "completed") else 1)


AtStep = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="STEP",
        help="Step of a checkpoint listed by `mortal show`. Default: the newest.",
    ),
]
ForkOverrides = Annotated[
    list[str] | None,
    override_option(
        help="Change a setting of the parent, such as training.max_steps=20. May be repeated.",
    ),
]


def fork(
    run_id: RunId,
    at_step: AtStep = None,
    overrides: ForkOverrides = None,
    new_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Id of the new run.")
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    trust: Trust = False,
) -> None:
    """Train a new run from a checkpoint of another run, with different settings.

    The parent is only read, and relative paths start where the parent's do. The new
    run inherits weights, optimizer moments and logs; the learning rate and all
    other settings are its own from its first step.
    """
    checking(f"looking at run {run_id}")
    from mortal.driver import drive
    from mortal_steps.orchestration.forking.fork import fork_run
    from mortal_steps.runs.run import find_run
    from mortal_steps.runs.trust import check_trusted

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is not None:
        from mortal.remote.runs import fetch_run

        fetch_run(volume, run_id, runs_dir, everything=True)
    parent = find_run(runs_dir.absolute(), run_id)
    if not trust:
        check_trusted(parent)
    os.chdir(parent.working_dir())
    forked = fork_run(
        parent, overrides or [], at_step=at_step, run_id=new_id, say=checking, tell=tell
    )
    say(f"run {forked.info.run_id} is a fork of {run_id} at step {forked.info.first_step}")
    if forked.info.fingerprint == parent.info.fingerprint:
        say("nothing is changed that decides its numbers: it will end with its parent's bits")
    drive(forked.config)


def _tell_detached(call_id: str, run_id: str, volume: str) -> None:
    say(f"run {run_id} continues on Modal ({call_id}); follow it with")
    say(f"    mortal show {run_id} --volume {volume}")
