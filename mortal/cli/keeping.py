"""`gc`, `doctor`, `deploy`: what past runs leave behind and the next ones need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mortal.cli.arguments import RunsDir, split_run
from mortal.cli.promoting import MODELS_DIR
from mortal.terminal.output import say
from mortal_steps.errors import ConfigError

if TYPE_CHECKING:  # help needs no configuration
    from mortal_steps.places.plan import PlacePlan

OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="DAYS",
        help="Remove runs whose last step is older. Default: as each run's "
        "retention.keep_days says.",
    ),
]
Protect = Annotated[
    list[str] | None,
    typer.Option("--protect", metavar="RUN", help="Keep this run. May be repeated."),
]
Delete = Annotated[
    bool, typer.Option("--delete", help="Remove it; without this, it is only listed.")
]
KeptModels = Annotated[
    Path | None,
    typer.Option(
        "--models-dir",
        metavar="DIR",
        help="Folder that holds the models in use, whose runs stay. Default: models, in the "
        "current folder and in those in which the runs began.",
        envvar=MODELS_DIR,
    ),
]
ModalSettings = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration file; its section compute.modal names app, Volume and GPUs.",
    ),
]


def gc(
    runs_dir: RunsDir = Path("runs"),
    older_than: OlderThan = None,
    models_dir: KeptModels = None,
    protect: Protect = None,
    delete: Delete = False,
) -> None:
    """List what can be removed of past runs, or remove it.

    Runs in progress are kept, and so are runs that a remaining run was forked from or began with,
    and runs whose model is in production. Leftovers of a removal that was killed are removed, too.
    """
    from mortal.maintenance import gc as housekeeping
    from mortal_steps.report.units import byte_size

    if older_than is not None and not older_than > 0:
        raise ConfigError(f"--older-than {older_than:g}: name a number of days above 0")
    kept_by_name = {_id_of(named, runs_dir) for named in protect or ()}
    if models_dir is not None and not models_dir.is_dir():
        raise ConfigError(
            f"--models-dir {models_dir}: there is no such folder; it names the models in "
            "production, whose runs are kept"
        )
    planned = housekeeping.plan(
        runs_dir,
        keep_days=older_than,
        protected={
            *kept_by_name,
            *housekeeping.runs_in_production(runs_dir, models_dir),
        },
    )
    for kept in planned.kept:
        say(f"stays: {kept}")
    if not planned.items:
        say("there is nothing to remove")
    if delete:
        raise typer.Exit(0 if housekeeping.carry_out(planned, runs_dir, say) else 1)
    for item in planned.items:
        say(f"{byte_size(item.num_bytes):>9}  {item.what}")
    if planned.items:
        total = byte_size(sum(item.num_bytes for item in planned.items))
        say(f"{total:>9}  in all; --delete removes it")


def _id_of(named: str, runs_dir: Path) -> str:
    """Return the id of a run of this folder, which may be named by its folder, too. Raises
    `ConfigError` for what is none: a slip would remove what is to be kept."""
    from mortal_steps.store.identity import IDENTITY_FILE

    folder, run_id = split_run(named, runs_dir)
    is_there = run_id not in ("", "..") and (folder / run_id / IDENTITY_FILE).exists()
    if not is_there or folder.resolve() != runs_dir.resolve():
        shown = named or "'' (an empty variable of the shell?)"
        raise ConfigError(f"--protect {shown}: there is no such run in {runs_dir}")
    return run_id


def doctor(
    config: ModalSettings = None,
    runs_dir: RunsDir = Path("runs"),
    modal: Annotated[
        bool, typer.Option("--modal", help="Check what runs on Modal need, too.")
    ] = False,
) -> None:
    """Check this machine, its Prefect server and, where runs are on Modal, what they need there.

    Modal is checked with --modal, or if CONFIG has compute.backend = "modal".
    The exit code is 1 if something keeps runs from working.
    """
    from mortal.maintenance.doctor import examine

    well = examine(runs_dir)
    compute = _place(config).compute
    if modal or compute.volume is not None:
        from mortal.remote.deploy import examine as examine_modal

        well = examine_modal(compute.modal) and well
    raise typer.Exit(0 if well else 1)


def deploy(config: ModalSettings = None) -> None:
    """Deploy the app to Modal, check it, and apply the Prefect deployments."""
    from mortal.remote import deploy
    from mortal_steps.places.modal.gpus import cluster_of

    place = _place(config)
    deploy.deploy(place.compute.modal, cluster_of(place.compute, place.actor_containers))


def _place(config: Path | None) -> PlacePlan:
    """Return what a configuration file says of the place, or the defaults."""
    from mortal_steps.plan.loader import load_config, parse_config
    from mortal_steps.plan.parts import Plan

    return Plan(parse_config({}) if config is None else load_config(config)).place
