"""`mortal schedule` of a recipe, killed with its server while a stage goes."""

import os
import signal

import pytest

from tests.support.schedule import Schedule
from tests.support.whole_recipe import record_of, wait_until, write_recipe


class Alive:
    """The process that drives the recipe, which is no child of this one."""

    def poll(self):
        return None


@pytest.fixture
def schedule(tmp_path):
    write_recipe(tmp_path)
    schedule = Schedule(tmp_path, "words.toml", "recipe/words")
    yield schedule
    schedule.end()


def test_a_recipe_outlasts_its_schedule_and_its_server(schedule):
    """Both are killed. The process of the recipe starts the server again, which ends with it."""
    schedule.request()
    wait_until(schedule.folder, "sft", 2, Alive())
    server = schedule.server()["process"]["pid"]
    schedule.process.kill()
    os.kill(server, signal.SIGKILL)
    assert schedule.ended_as("recipe/words") == "Completed"
    assert record_of(schedule.folder).status == "completed"
