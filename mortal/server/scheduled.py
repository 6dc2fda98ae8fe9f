"""Serves deployments without a work pool or a worker: this process starts their flow runs itself.

This module imports Prefect, which reads its settings when it is imported. So import it only after
the environment says which server to use.
"""

import asyncio
import contextlib
import functools
import hashlib
import inspect
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.schedules import Schedule
from prefect.server.schemas.schedules import CronSchedule
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from mortal.server.files import server_home
from mortal.server.local_server import join_server
from mortal.server.resilient_runner import ResilientRunner, named
from mortal_flows import project_folder, terminal
from mortal_flows.grpo_resume import grpo_resume
from mortal_flows.grpo_train import grpo_train
from mortal_flows.recipe import recipe
from mortal_steps import __version__
from mortal_steps.errors import ConfigError
from mortal_steps.recipes.file import RecipeConfig
from mortal_steps.store.files import locked_at_once, writing
from mortal_steps.system.streams import let_go_of_terminals

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_LOOK_S = 0.05
SKIP_AFTER_MIN = 60.0
"""How many minutes late a scheduled run may begin if another run occupied this machine."""
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
TRAINS = """Train with the settings that were given to `mortal schedule`, one run at a time.

- **To change some settings**: `overrides` = `["training.max_steps=20"]`; all others stay the same.
  For another configuration, set `config_file`.
- **If a run ended early**: *Retry*, or the deployment `{name}-resume` with the run's id. Nothing is
  lost.

Runs begin only while `mortal schedule` is running; see `docs/operations.md`.
"""
MAKES = """Make the stages of a recipe that are not complete, as it was given to `mortal schedule`.

- **To change some settings**: `overrides` = `["stages.grpo.training.max_steps=20"]`; all others
  stay the same. For another recipe, set `recipe_file`.
- **If it ended early**: *Retry*, or start it again. What is complete is not made again.

Flow runs begin only while `mortal schedule` is running; see `docs/recipes.md`.
"""
RESUMES = """Continue a run of `{name}` at its last step. `mortal runs` lists the ids for `run_id`.

It ends with the same bits as a run that was never interrupted. See `docs/operations.md`.
"""
FIELDS = 5
"""Minute, hour, day, month, weekday. Prefect takes a sixth for seconds: a run in each of them."""
REMEDY = (
    "write five fields, such as '0 3 * * *' (each night at three), and a zone such as Europe/Berlin"
)


def serve(deployments: Sequence[RunnerDeployment], say: Callable[[str], None]) -> None:
    """Serve these deployments until a signal ends this process. Raises `ConfigError` if the server
    has one of these names in a work pool."""
    for deployment in deployments:
        _refuse_pooled(named(deployment))
    runner = ResilientRunner(deployments, say)
    asyncio.run(runner.deploy())
    for deployment in deployments:
        say(f"serving {named(deployment)}")
    os.environ.update({project_folder.VARIABLE: str(Path.cwd()), terminal.VARIABLE: "1"})
    with tempfile.TemporaryDirectory() as nothing_to_import:
        os.chdir(nothing_to_import)
        asyncio.run(_serve(runner, say))


async def _serve(runner: ResilientRunner, say: Callable[[str], None]) -> None:
    """Run the runner until a signal, which also makes a run in progress save its state."""
    stopping = asyncio.Event()
    serving = asyncio.create_task(runner.start())
    while not runner.started and not serving.done():  # it sets a handler for SIGTERM as it starts
        await asyncio.sleep(START_LOOK_S)

    def hear(number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            let_go_of_terminals()
        stopping.set()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, hear, number)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if stopping.is_set():
        say("stopping; a run in progress saves its state")
        await runner.pause()
        await runner.astop()
    waiting.cancel()
    await serving


def scheduled_recipe(
    config: RecipeConfig, name: str, schedule: Schedule | None
) -> RunnerDeployment:
    """Return the deployment `NAME` of a recipe, whose flow runs outlast this process."""
    return _deployment(
        *(recipe, "served_recipe", name, MAKES, "recipe"),
        **_times({"config": config.model_dump(mode="json")}, schedule),
    )


def scheduled_deployments(
    settings: Mapping[str, Any], name: str, schedule: Schedule | None
) -> tuple[RunnerDeployment, RunnerDeployment]:
    """Return the deployments `NAME`, which trains with these values of a configuration, and
    `NAME-resume`, which continues one of its runs."""
    train = _deployment(
        *(grpo_train, "served_train", name, TRAINS.format(name=name), "train"),
        **_times({"config": dict(settings)}, schedule),
    )
    resume = _deployment(
        *(grpo_resume, "served_resume", f"{name}-resume", RESUMES.format(name=name), "resume"),
        parameters={"runs_dir": settings["runs_dir"]},
    )
    return train, resume


def _times(parameters: dict[str, Any], schedule: Schedule | None) -> dict[str, Any]:
    """Return when the flow runs of a deployment begin, and with which parameters."""
    late = {} if schedule is None else {"skip_after_min": SKIP_AFTER_MIN}
    return {
        "parameters": parameters | late,
        "schedule": schedule,
        "concurrency_limit": ONE_AT_A_TIME,
    }


def _deployment(
    flow: Flow[..., Any], served: str, name: str, description: str, tag: str, **others: Any
) -> RunnerDeployment:
    """Return a deployment whose processes import the flow as `served` of this module."""
    made = RunnerDeployment.from_flow(
        flow,
        name=name,
        description=description,
        tags=[tag],
        version=__version__,
        entrypoint_type=EntrypointType.MODULE_PATH,
        **others,
    )
    made.entrypoint = f"{__name__}.{served}"
    return made


def _refuse_pooled(name: str) -> None:
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_deployment_by_name(name).work_pool_name
        except ObjectNotFound:
            return
    if pool is not None:
        raise ConfigError(
            f"the deployment {name} belongs to the workers of the pool {pool!r}; serve "
            "under another --name"
        )


@contextlib.contextmanager
def serving_alone(name: str, api_url: str) -> Iterator[None]:
    """Hold a lock on `name` at this server during the block. The kernel releases it when this
    process ends.

    Two that serve one name would share its runs between them, in different folders, with the
    configuration of the one that was started last.

    Raises `ConfigError` if another process of this user on this machine serves the name.
    """
    of_server = hashlib.sha256(f"{api_url} {name}".encode()).hexdigest()[:16]
    path = server_home() / f"serves-{of_server}.lock"
    with locked_at_once(path) as lock:
        if lock is None:
            there = path.read_text(encoding="utf-8") or "another process"
            raise ConfigError(
                f"another `mortal schedule` already serves {name} ({there}); end it, or choose "
                "another --name"
            )
        with writing(path):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} in {Path.cwd()}")
            lock.flush()
        yield


def _served(flow: Flow[..., Any]) -> Flow[..., Any]:
    """Return the flow as its processes import it: it outlasts this one, and keeps the server."""
    served, trains = flow.with_options(), flow.fn

    @functools.wraps(trains)
    async def outlast(*args: Any, **kwargs: Any) -> Any:
        join_server(get_run_logger().warning)
        return await trains(*args, **kwargs)

    # Prefect checks the parameters by it, and looks for the types that it names in this module.
    outlast.__signature__ = inspect.signature(trains, eval_str=True)  # type: ignore[attr-defined]
    served.fn = outlast
    return served


served_train = _served(grpo_train)
served_resume = _served(grpo_resume)
served_recipe = _served(recipe)


def cron_schedule(cron: str, timezone: str) -> Schedule:
    """Return the times as Prefect's schedule. Raises `ConfigError` if they are malformed or never
    come, such as 31 February, which Prefect's server accepts."""
    given, fields = f"--cron {cron!r} --timezone {timezone!r}", len(cron.split())
    if fields > FIELDS:
        raise ConfigError(f"{given}: there are {fields} fields; {REMEDY}")
    try:
        _next_time(cron, timezone)
    except ValidationError as error:
        raise ConfigError(f"{given}: {error.errors()[0]['ctx']['error']}; {REMEDY}") from None
    except LookupError:  # known to this machine alone, such as `localtime`
        raise ConfigError(f"{given}: Prefect knows no such time zone; {REMEDY}") from None
    except ValueError:
        raise ConfigError(f"{given}: no such time ever comes; {REMEDY}") from None
    return Schedule(cron=cron, timezone=timezone)


def next_time(schedule: Schedule) -> datetime:
    """When a schedule begins its next run, in its time zone, as the server computes it."""
    return _next_time(str(schedule.cron), schedule.timezone)


def _next_time(cron: str, timezone: str | None) -> datetime:
    (due,) = asyncio.run(CronSchedule(cron=cron, timezone=timezone).get_dates(n=1))
    return due
