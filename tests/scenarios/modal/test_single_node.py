"""Single-node mode: actor and rollout worker take turns in one container."""

from mortal_steps.orchestration.open_run import open_run
from tests.support import bare_flow
from tests.support.chaos.comparison import digests
from tests.support.modal.fire import NODE, SINGLE_NODE, Fire
from tests.support.modal.project import MORTAL, ON_MODAL, STEPS, at, project


def test_a_node_that_is_preempted_gives_the_bits_of_workers_apart(here, plane, tmp_path):
    """In a train step; `make chaos-modal` kills nodes while they sample, too."""
    with bare_flow.bare_in(tmp_path):
        open_run(project(tmp_path, "node", *ON_MODAL, SINGLE_NODE))
    fire = Fire(plane, tmp_path, "node", SINGLE_NODE, actor=NODE)
    assert fire.strike(NODE, "taking step 2", plane.preempt)
    fire.finish()
    assert fire.actors_follow_each_other(), "one container at a time does all of it"
    plane.run(*MORTAL, "fetch", "node", "--runs-dir=fetched", "--all", **at(tmp_path))
    assert digests(tmp_path / "fetched/node", STEPS) == digests(here.store.root, STEPS)
