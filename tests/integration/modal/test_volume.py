"""A Volume of one's own needs an app of its own: each app has one, and says which."""

import asyncio
import json
from dataclasses import replace
from functools import partial

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ComputeError
from mortal_steps.places.modal.deployed import check_deployed, worker_of
from mortal_steps.places.modal.files import volume_lease
from mortal_steps.places.modal.files.mirror import Mirror
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.lease import LeaseRecord
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.modal.project import MORTAL, ON_MODAL, at, project
from tests.support.modal.requests import REQUEST

MINE = """
[compute.modal]
app = "mine"
volume = "mine"
"""


@pytest.fixture(scope="module")
def mine(plane, tmp_path_factory):
    """A configuration whose app and Volume have names of their own, and are there."""
    folder = tmp_path_factory.mktemp("mine")
    project(folder, "any")
    with (folder / "chaos.toml").open("a") as file:
        file.write(MINE)
    told = plane.run(*MORTAL, "deploy", "chaos.toml", **at(folder))
    assert "ok       Volume mine: is there" in told
    assert "as here, with the Volume mine\n" in told
    return load_config(folder / "chaos.toml", ON_MODAL)


def test_a_run_and_its_app_must_be_of_one_volume(plane, mine, tmp_path):
    asyncio.run(check_deployed(Plan(mine).place))
    for setting, has, wanted in (
        ("app=mine", "mine", "mortal-runs"),
        ("volume=mine", "mortal-runs", "mine"),
    ):
        config = project(tmp_path, "any", *ON_MODAL, f"compute.modal.{setting}")
        told = f"Volume {has}.* on {wanted} .*`mortal deploy CONFIG`"
        with pytest.raises(ComputeError, match=told):
            asyncio.run(check_deployed(Plan(config).place))


def test_a_container_refuses_what_is_asked_for_a_run_on_another_volume(plane, mine):
    """The app was deployed anew, with this Volume, while the run went on."""
    request = replace(REQUEST, role="reward", method="dry_run", payload={})
    result = worker_of(mine.compute, mine.rollout, "reward", "any", 0).call.remote(request)
    with pytest.raises(ComputeError, match=r"Volume mine.* mortal-runs"):
        raise result.error


def test_a_run_is_verified_by_the_app_that_it_names_and_fetched_as_it_is(plane, mine, tmp_path):
    other = mine.model_copy(update={"compute": project(tmp_path, "any", *ON_MODAL).compute})
    for run_id, config in (("own", mine), ("astray", other)):
        store = RunStore(tmp_path / run_id)
        settings = config.model_copy(update={"run_id": run_id})
        write_identity(store, settings, [Problem(id="p", prompt="a")], [])
        store.write_record(MANIFEST_FILE, RunManifest(status="running", step=0), RunManifest)
        asyncio.run(Mirror(RunsVolume("mine"), store).begin())

    def mortal(*command):
        return CliRunner().invoke(app, [*command, "--volume=mine"])

    checked = json.loads(mortal("verify", "own", "--json").output)
    assert checked["damaged"] == []
    assert checked["files"] >= 5
    told = "the deployed app has the Volume mortal-runs"
    assert told in str(mortal("verify", "astray").exception)
    found = json.loads(mortal("status", "--json").output)
    astray, own = sorted(found, key=lambda run: run["run_id"])
    assert (own["run_id"], own["status"], own["step"]) == ("own", "interrupted", 0)
    assert astray["waits_for"] == "mortal resume astray --volume mine"
    fetched = mortal("fetch", "own", f"--runs-dir={tmp_path}/fetched").output
    assert fetched.endswith("/own, without a final model: it is at step 0 of 1\n")


def test_runs_of_one_id_on_two_volumes_are_driven_apart(plane, mine, monkeypatch):
    monkeypatch.setattr(LeaseRecord, "is_here", lambda record: False)

    async def drive_both():
        heard = {}
        volumes = RunsVolume("mine"), RunsVolume("mortal-runs")
        held = {volume.name: await volume_lease.acquire(volume, "same") for volume in volumes}
        await volume_lease.ask_to_stop(volumes[0], "same", "me")
        for name, one in held.items():
            one.on_stop = partial(heard.__setitem__, name)
            await one._renew()
            await one.release()
        return heard

    assert asyncio.run(drive_both()) == {"mine": "me"}
