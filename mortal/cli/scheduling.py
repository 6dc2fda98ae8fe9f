"""`server`, `schedule`, `automate`: the commands about the Prefect server."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from mortal.cli.arguments import Overrides, WhereRunsGo, is_recipe_file, place_of_run
from mortal.terminal.output import say

PORTS = (4200, 0)
"""Port 4200, or a free one if that is taken."""
NOT_IN_NAMES = "/%&<>"
"""Characters that Prefect refuses in names."""

Silence = Annotated[
    float,
    typer.Option(
        min=10,
        metavar="SECONDS",
        help="Count a run as crashed after this long without a heartbeat or without a start.",
    ),
]
Pause = Annotated[
    float,
    typer.Option(
        min=10, metavar="SECONDS", help="How long to wait between a crash and the restart."
    ),
]
Attempts = Annotated[
    int,
    typer.Option(
        min=2, metavar="N", help="How often one flow run may start, the first time included."
    ),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BLOCK",
        help="Send the notices of runs (a reward collapsed, a run failed or finished) through this "
        "notification block, such as slack-webhook/ops. May be repeated; replaces the blocks given "
        "before.",
    ),
]
NoNews = Annotated[
    bool,
    typer.Option(
        "--no-news", help="Notify of warnings and failures, not of runs that finish or resume."
    ),
]
Remove = Annotated[
    bool, typer.Option("--remove", help="Remove the automations instead of creating them.")
]


def server(
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Port to start the server at. Default: 4200, or a free one if that is taken.",
        ),
    ] = None,
) -> None:
    """Run MORTAL's own Prefect server until Ctrl-C, to look at past runs or schedule new ones.

    PREFECT_API_URL is ignored. If another command has already started the server, that one is used.
    """
    from mortal.server.local_server import answering, begun_server
    from mortal.server.select_server import prepare_client

    prepare_client()
    ports = (port,) if port else PORTS
    with begun_server(ports, typer.echo) as running, answering(running, typer.echo):
        typer.echo(f"Prefect UI: {running.ui_url}  (Ctrl-C stops it)")
        while True:
            time.sleep(3600)


def schedule(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file.")],
    overrides: Overrides = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="CRON",
            help="Train at these times, such as '0 3 * * *' for every night at three.",
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin. Default: UTC."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the deployment. Default: the configuration's."),
    ] = None,
    runs_dir: WhereRunsGo = None,
) -> None:
    """Train on demand or on a schedule, without a work pool or a worker, until Ctrl-C.

    This makes two Prefect deployments: grpo-train/NAME, and grpo-train/NAME-resume for its
    runs that ended early. For a recipe it makes one, recipe/NAME, and each start makes the stages
    that are not complete. Runs go one at a time, and further ones wait. With --cron, a run that
    would begin more than an hour late is skipped. Relative paths start in the current folder. Edits
    of the configuration take effect when you start this command again.
    """
    from mortal.driver import QUIET_PREFECT
    from mortal.server.select_server import prefect_server

    read = _recipe if is_recipe_file(config) else _run
    folder = place_of_run(None, runs_dir, overrides or (), context)
    served = read(config, overrides or [], folder)
    _refuse_contradictions(served.run_id, cron, timezone)
    _check_name(name)
    for variable, value in QUIET_PREFECT.items():
        os.environ.setdefault(variable, value)
    with prefect_server(say, PORTS) as running:
        # Prefect reads its settings when it is imported.
        from mortal.server import scheduled
        from mortal.server.scheduled import cron_schedule, next_time

        times = cron_schedule(cron, timezone or "UTC") if cron is not None else None
        deployed = name or served.name
        with scheduled.serving_alone(f"{served.flow}/{deployed}", running.api_url):
            say(f"Prefect UI: {running.ui_url}  (Ctrl-C ends this)")
            start = f"PREFECT_API_URL={running.api_url} prefect deployment run"
            say(f"start a run there, or with   {start} {quote(f'{served.flow}/{deployed}')}")
            if times is not None:
                say(f"the next run is due on {next_time(times):%Y-%m-%d at %H:%M %Z}")
            say(f"{config} was read now; after an edit, start this command again")
            if served.run_id is not None:
                say(f"run_id = {served.run_id} is fixed: each start continues that same run")
            scheduled.serve(served.deployments(deployed, times), say)


@dataclass(frozen=True, kw_only=True)
class Served:
    """What `mortal schedule` serves."""

    flow: str
    name: str
    run_id: str | None
    deployments: Callable[[str, Any], Sequence[Any]]
    """Makes Prefect's deployments, of a name and a schedule; it imports Prefect."""


def _run(file: Path, overrides: list[str], folder: Mapping[str, str]) -> Served:
    from mortal_steps.plan.loader import load_config

    config = load_config(file, overrides).model_copy(update=folder)
    values = config.model_dump(mode="json", exclude_unset=True)
    values["runs_dir"] = config.runs_dir

    def deployments(name: str, schedule: Any) -> Sequence[Any]:
        from mortal.server.scheduled import scheduled_deployments

        return scheduled_deployments(values, name, schedule)

    return Served(
        flow="grpo-train", name=config.name, run_id=config.run_id, deployments=deployments
    )


def _recipe(file: Path, overrides: list[str], folder: Mapping[str, str]) -> Served:
    from mortal_steps.recipes.file import read_recipe
    from mortal_steps.recipes.recipe import Recipe
    from mortal_steps.recipes.same_name import note_file

    config = read_recipe(file, overrides).model_copy(update=folder)
    Recipe(config)  # raises for what is no graph
    note_file(config, file)

    def deployments(name: str, schedule: Any) -> Sequence[Any]:
        from mortal.server.scheduled import scheduled_recipe

        return [scheduled_recipe(config, name, schedule)]

    return Served(flow="recipe", name=config.name, run_id=None, deployments=deployments)


def _refuse_contradictions(run_id: str | None, cron: str | None, timezone: str | None) -> None:
    from mortal_steps.errors import ConfigError

    if timezone is not None and cron is None:
        raise ConfigError("--timezone needs --cron CRON, which says when to train")
    if timezone == "":
        raise ConfigError("--timezone is empty; name a zone, such as Europe/Berlin")
    if run_id is not None and cron is not None:
        raise ConfigError(
            f"run_id = {run_id!r} is fixed: once that run is complete, --cron has nothing to "
            "train. Leave out run_id, so that each time has a run of its own, or leave out --cron"
        )


def _check_name(name: str | None) -> None:
    from mortal_steps.errors import ConfigError

    if name is not None and (not name or set(name) & set(NOT_IN_NAMES)):
        raise ConfigError(
            f"--name {name!r}: Prefect takes no such name for a deployment; write one without "
            f"{' '.join(NOT_IN_NAMES)}, or leave it out"
        )


def automate(
    silence_s: Silence = 90,
    pause_s: Pause = 20,
    attempts: Attempts = 5,
    notify: Notify = None,
    no_news: NoNews = False,
    remove: Remove = False,
) -> None:
    """Let the Prefect server restart crashed deployment runs by itself, and notify you.

    `prefect block create TYPE` shows the page on which you create a notification
    block; `prefect block ls` lists the blocks that exist.
    """
    from mortal.server.select_server import prefect_server
    from mortal_steps.errors import ConfigError

    if no_news and not notify:
        raise ConfigError("--no-news is about --notify BLOCK; name the block, too")
    if remove and notify:
        raise ConfigError("--remove removes all notifications; leave out --notify, or --remove")
    with prefect_server(typer.echo):
        # Prefect reads its settings when it is imported.
        from mortal.server import automations, notifications
        from mortal.server.recovery import Recovery

        def lines() -> Iterator[str]:
            if remove:
                yield from automations.remove()
                return
            if notify:
                levels = notifications.WITHOUT_NEWS if no_news else notifications.ALL
                yield from notifications.notify(notify, levels)
                if not automations.has_deployments():
                    yield "there is no deployment whose runs could be restarted"
                    return
            recovery = Recovery(silence_s=silence_s, pause_s=pause_s, attempts=attempts)
            yield from automations.automate(recovery)

        for line in lines():
            typer.echo(line)
