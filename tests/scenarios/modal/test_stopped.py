"""A detached run that is stopped on its way, and sent off again."""

import asyncio
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import StoreError
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.files.volume_lease import find_lease
from mortal_steps.runs.run import find_run
from tests.support.modal.detached import STOP, detach, folder, staying
from tests.support.modal.project import MORTAL, assert_same, at

__all__ = ["folder", "staying"]


@pytest.fixture(scope="module")
def stopped(plane, staying, folder):
    """What `mortal stop` says of the run once it is on its way, and a second one then."""
    call = detach(plane, folder)
    plane.wait_until(lambda: asyncio.run(find_lease(RunsVolume("mortal-runs"), "moving")))
    told = plane.run(*MORTAL, *STOP, **at(folder))
    plane.wait_for("input_finished", call=call)
    again = CliRunner().invoke(app, STOP).exception
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 30)
    return SimpleNamespace(told=told, again=again)


def test_a_detached_run_is_stopped_in_order(stopped):
    assert "stopped by `mortal stop` on" in stopped.told
    assert isinstance(stopped.again, StoreError)
    assert "no process drives run moving" in str(stopped.again)


def test_sent_off_again_it_ends_with_the_bits_of_the_run_that_stayed(
    plane, stopped, staying, folder
):
    plane.wait_for("input_finished", call=detach(plane, folder), timeout_s=480)
    plane.run(*MORTAL, "fetch", "moving", "--runs-dir=fetched", "--all", **at(folder))
    assert_same(find_run(folder / "fetched", "moving"), staying)
