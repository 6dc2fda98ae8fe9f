"""mortal_flows.stage_work where the process of a stage ends with an error."""

import pytest
from prefect.logging import disable_run_logger

from mortal_flows import stage_work
from mortal_flows.stage_work import StageWork
from mortal_steps.errors import WorkerLostError


class Lost:
    """The process of a stage that could not tell the server of its end."""

    def __init__(self, call, log, *, deployed):
        pass

    async def ended(self):
        raise WorkerLostError("no server")


class Recipe:
    def __init__(self, product):
        self.stages = {"best": self}
        self._product = product

    def product(self, job):
        return self._product


class Folder:
    def log_file(self, name):
        return None


def work(product, monkeypatch):
    monkeypatch.setattr(stage_work, "StageProcess", Lost)
    monkeypatch.setattr(StageWork, "_call", lambda self, name, job: None)
    return StageWork(Recipe(product), Folder(), None, None, None, deployed=False)


async def test_a_stage_that_is_made_is_made_though_its_process_ended_with_an_error(monkeypatch):
    with disable_run_logger():
        assert await work("rows", monkeypatch)._run("best", None) == "rows"


async def test_one_that_is_not_made_has_failed(monkeypatch):
    with disable_run_logger(), pytest.raises(WorkerLostError):
        await work(None, monkeypatch)._run("best", None)
