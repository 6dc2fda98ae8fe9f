"""A fork from the command line, on a real Prefect server, with other workers than its parent's."""

from tests.support.undisturbed import undisturbed


def test_a_fork_with_more_workers_ends_with_its_parents_bits(mortal):
    """Nothing is the same but the bits: a flow of its own, three rollout workers in place of one,
    everything sampled anew."""
    undisturbed(mortal.folder, ["checkpoints.keep_last=3"], "one")
    workers = ("--set", "rollout.num_rollout_workers=3")
    output = mortal("fork", "one", "--at-step", "2", "--run-id", "forked", *workers)
    assert "run forked is a fork of one at step 2" in output and "step 5/5" in output
    assert "it will end with its parent's bits" in output
    one, forked = mortal.show("one"), mortal.show("forked")
    assert (forked["status"], forked["parent"]) == ("completed", {"run_id": "one", "step": 2})
    assert forked["final_weights_sha256"] == one["final_weights_sha256"]
    assert "the chain of 3 steps is whole" in mortal("verify", "forked")
    names = {run["name"] for run in mortal.ended_runs_of_flow("forked")}
    assert {"train_step/2", "train_step/4"} <= names and "train_step/1" not in names
