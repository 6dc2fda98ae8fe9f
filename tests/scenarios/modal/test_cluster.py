"""An actor whose ranks are in two containers of a control plane of Modal.

The plane gives each request to both, as Modal's guide says, and tells neither of the other's end.
"""

import asyncio
import subprocess
import sys

import pytest

from mortal_steps.config import gpus
from mortal_steps.errors import ComputeError
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.modal.deployed import check_deployed
from mortal_steps.plan.loader import dump_toml
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import find_run
from tests.support import bare_flow
from tests.support.chaos.comparison import digests
from tests.support.modal.fire import CLUSTER, Fire
from tests.support.modal.project import MORTAL, ON_MODAL, STEPS, at, project
from tests.support.paths import ROOT

DRIVER = "tests.support.modal.small_machines"
SPREAD = (*ON_MODAL, "compute.modal.app=spread", "compute.modal.actor=H100:2")
SETTINGS = {
    "sharded": ("training.ranks=4", "training.sharding=full"),
    "copied": ("training.ranks=4", "training.gradient_accumulation_steps=1"),
}


def spread_config(gpus_each):
    """A run whose actor is in two containers of Modal's."""
    modal = {"app": "spread", "actor": f"H100:{gpus_each}"}
    training = {"ranks": 2 * gpus_each, "batch_size": 16}
    return RunConfig(compute={"backend": "modal", "modal": modal}, training=training)


@pytest.fixture(scope="module")
def spread(plane, tmp_path_factory):
    """The plane with an app whose actors are in two containers."""
    file = tmp_path_factory.mktemp("spread") / "spread.toml"
    file.write_text(dump_toml(spread_config(2)))
    plane.run(sys.executable, "-m", DRIVER, "deploy", str(file), **at(ROOT))
    return plane


def on_one_machine(folder, name):
    """The same run on this machine."""
    with bare_flow.bare_in(folder):
        open_run(project(folder, "here", *SETTINGS[name]))
    command = [sys.executable, "-m", DRIVER, str(folder), "here", *SETTINGS[name]]
    subprocess.run(command, cwd=ROOT, check=True)
    return find_run(folder / "runs", "here")


def begin(spread, folder, name, run_id):
    """A run on two machines."""
    with bare_flow.bare_in(folder) as patch:
        patch.setitem(gpus.FEWER_PER_CONTAINER, "H100", 2)
        open_run(project(folder, run_id, *SPREAD, *SETTINGS[name]))
    settings = (*SPREAD, *SETTINGS[name])
    return Fire(spread, folder, run_id, *settings, actor=CLUSTER, driver=DRIVER)


def finish(spread, fire):
    """The run at its end, with all of its files."""
    fire.finish()
    folder = fire.run_dir.parents[1]
    spread.run(*MORTAL, "fetch", fire.run_dir.name, "--runs-dir=fetched", "--all", **at(folder))
    return folder / "fetched" / fire.run_dir.name


def containers(spread, kind):
    """The clusters' containers that had this event, by rank, oldest first."""
    found = spread.events(kind, function=CLUSTER)
    ranks = {each["task"]: each["rank"] for each in spread.events("container_started")}
    return [[each["task"] for each in found if ranks[each["task"]] == rank] for rank in (0, 1)]


@pytest.mark.parametrize(
    ("app", "there"), [("mortal", "none in more than one"), ("spread", "2 x H100:2, 8 cores")]
)
def test_an_app_with_other_actors_is_not_used(spread, app, there):
    wanted = spread_config(8)
    modal = wanted.compute.modal.model_copy(update={"app": app})
    compute = wanted.compute.model_copy(update={"modal": modal})
    with pytest.raises(ComputeError, match=rf"2 x H100:8, .* has {there}.*`mortal deploy CONFIG`"):
        asyncio.run(check_deployed(Plan(wanted.model_copy(update={"compute": compute})).place))


def test_ranks_in_two_containers_have_the_bits_of_those_on_one_machine(spread, tmp_path):
    here = on_one_machine(tmp_path, "copied")
    away = finish(spread, begin(spread, tmp_path, "copied", "copied"))
    assert digests(away, STEPS) == digests(here.store.root, STEPS)


@pytest.mark.parametrize("number", [0, 1])
def test_a_lost_container_takes_the_other_along_and_both_begin_anew(spread, tmp_path, number):
    here = on_one_machine(tmp_path, "sharded")
    fire = begin(spread, tmp_path, "sharded", f"sharded-{number}")
    leader = fire.wait_while(CLUSTER, "taking step 1")
    before = containers(spread, "container_started")
    spread.kill(before[number][-1])
    other = before[1 - number][-1]
    assert spread.wait_for("container_ended", task=other)["exit_code"] == 1
    assert leader == before[0][-1]
    away = finish(spread, fire)
    assert digests(away, STEPS) == digests(here.store.root, STEPS)
    assert [len(each) for each in containers(spread, "container_started")] == [
        len(each) + 1 for each in before
    ]
