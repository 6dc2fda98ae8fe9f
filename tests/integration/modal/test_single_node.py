"""Single-node mode: actor and rollout worker take turns in one container."""

from tests.support.chaos.comparison import digests
from tests.support.modal.fire import Fire
from tests.support.modal.project import MORTAL, STEPS, at

NODE = "SingleNodeWorker.*"


def test_a_node_under_fire_gives_the_bits_of_workers_apart(here, plane, tmp_path):
    """It is killed while it samples, and preempted in a train step."""
    fire = Fire(plane, tmp_path, "node", "compute.mode=single_node", actor=NODE)
    assert fire.strike(NODE, "sampling steps/000001", plane.kill)
    assert fire.strike(NODE, "taking step 2", plane.preempt)
    fire.finish()
    assert fire.actors_follow_each_other(), "one container at a time does all of it"
    plane.run(*MORTAL, "fetch", "node", "--runs-dir=fetched", "--all", **at(tmp_path))
    assert digests(tmp_path / "fetched/node", STEPS) == digests(here.store.root, STEPS)
