"""`gc`, `doctor`: remove what past runs leave behind, and check what the next runs need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mortal.cli.arguments import RunsDir
from mortal.cli.deploying import ModalSettings, modal_options
from mortal.cli.promoting import ModelsDir

OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="DAYS",
        help="Remove runs whose last step is older. Default: as each run's "
        "retention.keep_days says.",
    ),
]
KeepRollouts = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Of completed runs, keep the completions of the newest N steps. Default: as each "
        "run's retention.keep_rollouts says.",
    ),
]
Protect = Annotated[
    list[str] | None,
    typer.Option("--protect", metavar="RUN", help="Keep this run. May be repeated."),
]
Delete = Annotated[
    bool, typer.Option("--delete", help="Remove it; without this, it is only listed.")
]


def gc(
    runs_dir: RunsDir = Path("runs"),
    older_than: OlderThan = None,
    keep_rollouts: KeepRollouts = None,
    models_dir: ModelsDir = Path("models"),
    protect: Protect = None,
    delete: Delete = False,
) -> None:
    """List what can be removed of past runs, or remove it.

    Runs in progress are kept, and so are runs that a remaining run was forked from or began with,
    and runs whose model is in production. Leftovers of a removal that was killed are removed, too.
    """
    from mortal.keeping import gc as housekeeping
    from mortal.terminal.output import say
    from mortal_steps.errors import ConfigError
    from mortal_steps.registry.lineage import runs_in_use
    from mortal_steps.report.units import byte_size

    if older_than is not None and not older_than > 0:
        raise ConfigError(f"--older-than {older_than:g}: name a number of days above 0")
    for run_id in protect or ():
        if not (runs_dir / run_id).is_dir():  # a slip here would remove what is to be kept
            raise ConfigError(f"--protect {run_id}: there is no such run in {runs_dir}")
    planned = housekeeping.plan(
        runs_dir,
        keep_days=older_than,
        keep_rollouts=keep_rollouts,
        protected={*(protect or ()), *runs_in_use(models_dir)},
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
    from mortal.keeping.doctor import examine

    well = examine(runs_dir)
    options, on_modal = modal_options(config)
    if modal or on_modal:
        from mortal.remote.deploy import examine as examine_modal

        well = examine_modal(options) and well
    raise typer.Exit(0 if well else 1)
