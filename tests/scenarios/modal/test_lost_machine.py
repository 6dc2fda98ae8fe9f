"""A machine that is lost for good, with all its files: another one goes on from the Volume.

What travelled with requests and results was nowhere else, and the Volume has not heard lately where
the run stands.
"""

import shutil

import pytest

from mortal_steps.orchestration.open_run import open_run
from tests.support import bare_flow
from tests.support.chaos.comparison import digests
from tests.support.modal.fire import ACTOR, ROLLOUT, Fire
from tests.support.modal.project import MORTAL, ON_MODAL, STEPS, at, project


@pytest.mark.parametrize(
    ("run_id", "function", "doing", "strikes"),
    [
        ("lost-training", ACTOR, "taking step 2", (ACTOR,)),
        ("lost-sampling", ROLLOUT, "sampling steps/000002", (ROLLOUT, ACTOR)),
        ("lost-beside", ACTOR, "taking step 1", ()),
    ],
)
def test_a_run_whose_machine_is_lost_ends_with_the_same_bits(
    here, plane, tmp_path, run_id, function, doing, strikes
):
    """The flow is killed and its run directory gone; so are containers with what they had not
    committed. Without that, the call that nobody knows of any more goes on."""
    with bare_flow.bare_in(tmp_path):
        open_run(project(tmp_path, run_id, *ON_MODAL))
    fire = Fire(plane, tmp_path, run_id)
    fire.wait_while(function, doing)
    fire.kill_flow()
    for task in [task for name in strikes for task in plane.tasks(name)]:
        plane.kill(task["id"])
    shutil.rmtree(tmp_path / "runs")
    fire.start()
    fire.finish()
    plane.run(*MORTAL, "verify", run_id, "--volume=mortal-runs", **at(tmp_path))
    plane.run(*MORTAL, "fetch", run_id, "--runs-dir=fetched", "--all", **at(tmp_path))
    assert digests(tmp_path / "fetched" / run_id, STEPS) == digests(here.store.root, STEPS)
