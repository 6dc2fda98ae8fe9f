"""The deployments that `mortal schedule` makes."""

import asyncio
import re
import socket
from uuid import uuid4

import pytest
import typer
from prefect.exceptions import ParameterTypeError
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal.cli import app
from mortal.cli.scheduling import schedule
from mortal.server.resilient_runner import ResilientRunner
from mortal.server.scheduled import (
    cron_schedule,
    next_time,
    scheduled_deployments,
    scheduled_recipe,
)
from mortal_flows.grpo_resume import grpo_resume
from mortal_flows.grpo_train import grpo_train
from mortal_flows.promote import promote
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import load_config
from mortal_steps.recipes.file import read_recipe
from tests.support.paths import ROOT

CONFIG = load_config(ROOT / "deployments/configs/demo.toml", ["training.max_steps=20"])
VALUES = CONFIG.model_dump(mode="json")


def test_a_scheduled_run_trains_what_the_file_and_the_overrides_say():
    train, resume = scheduled_deployments(VALUES, "demo", None)
    assert (train.name, resume.name) == ("demo", "demo-resume")
    assert grpo_train.validate_parameters(train.parameters)["config"] == CONFIG
    assert "skip_after_min" not in train.parameters
    assert train.schedules == []
    assert train.concurrency_limit == 1
    assert train.concurrency_options.collision_strategy == "ENQUEUE"
    grpo_resume.validate_parameters({**resume.parameters, "run_id": "demo-1"})


@pytest.mark.parametrize("flow", [grpo_resume, promote])
def test_a_run_id_is_taken_as_a_form_gives_it(flow):
    assert flow.validate_parameters({"run_id": " demo-1\n"})["run_id"] == "demo-1"
    with pytest.raises(ParameterTypeError) as refused:
        flow.validate_parameters({"run_id": "demo 1"})
    assert "'demo 1' is no run's id, which consists of letters, digits" in str(refused.value)
    assert "A-Z" not in str(refused.value)


def test_a_scheduled_night_that_waited_for_long_is_skipped():
    train, _ = scheduled_deployments(VALUES, "demo", cron_schedule("0 3 * * *", "Europe/Berlin"))
    when = train.schedules[0].schedule
    assert (when.cron, when.timezone) == ("0 3 * * *", "Europe/Berlin")
    assert train.concurrency_limit == 1
    assert train.concurrency_options.collision_strategy == "ENQUEUE"
    assert train.parameters["skip_after_min"] == 60


def test_a_recipe_whose_server_is_away_is_named_by_its_own_flow():
    recipe, said = read_recipe(ROOT / "examples/recipe/recipe.toml"), []
    runner = ResilientRunner([], said.append)
    runner._served[uuid4()] = scheduled_recipe(recipe, "letters", None)
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: away}):
            asyncio.run(runner.pause())
    assert said[0].startswith("the schedule of recipe/letters could not be paused")


@pytest.mark.parametrize(
    ("cron", "timezone", "told"),
    [
        ("0 3 * *", "UTC", "Invalid cron string"),
        ("0 3 * * *", "Mars", "Invalid timezone"),
        ("0 3 * * *", "localtime", "Prefect knows no such time zone"),
        ("0 3 31 2 *", "UTC", "no such time ever comes"),
        ("0 0 3 * * *", "UTC", "there are 6 fields"),
    ],
)
def test_a_schedule_that_begins_no_night_is_refused(cron, timezone, told):
    given = re.escape(f"--cron {cron!r} --timezone {timezone!r}: {told}")
    with pytest.raises(ConfigError, match=f"{given}.*write five fields"):
        cron_schedule(cron, timezone)


def test_the_next_time_is_told_in_its_zone():
    due = next_time(cron_schedule("30 2 29 2 *", "Europe/Berlin"))
    assert f"{due:%m-%d %H:%M %Z}" == "02-29 02:30 CET"


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({"timezone": "Europe/Berlin"}, "--timezone needs --cron"),
        ({"cron": "0 3 * * *", "timezone": ""}, "--timezone is empty"),
        ({"cron": "0 3 * * *", "overrides": ["run_id=one"]}, "run_id = 'one' is fixed"),
        ({"name": "a/b"}, "--name 'a/b': Prefect takes no such name"),
        ({"name": ""}, "--name ''"),
    ],
)
def test_what_contradicts_a_schedule_is_refused_before_a_server_starts(times, told):
    context = typer.Context(typer.main.get_command(app))
    with pytest.raises(ConfigError, match=told):
        schedule(context, ROOT / "deployments/configs/demo.toml", **times)
