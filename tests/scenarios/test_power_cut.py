"""An actor whose machine loses its power between two file operations comes back to the same bits,
though folders are synced, journals written and old versions deleted beside its other work."""

import os

import pytest

from mortal_steps.config.checkpoints import CheckpointsConfig
from mortal_steps.store import shared_memory
from mortal_steps.store.files import digest_file
from tests.support.policy.fixtures import model_path, one_thread
from tests.support.policy.power_cut import CUT, Watched, lose_what_was_not_synced
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run

__all__ = ["model_path", "one_thread"]

SETUPS = {
    "full": {},
    "ahead": {"rollout": {"staleness": 1}},
    "ahead, direct": {"rollout": {"staleness": 1, "weight_sync": "direct"}},
    "adapter": {"use_lora": True, "lora": {"publish": "adapter"}},
}
NUM_CUTS = 10
KEPT = CheckpointsConfig(save_steps=2, keep_last=2, keep_rollouts=1)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_power_cut_changes_no_bit(model_path, tmp_path, setup):
    def begun(name):
        config = make_config(**SETUPS[setup]).model_copy(update={"checkpoints": KEPT})
        return make_run(tmp_path / name, config, model_path)

    whole, counted = begun("whole"), tmp_path / "operations"
    assert forked(lambda: count(whole, counted)) == 0
    operations, expected = int(counted.read_text()), outcome(whole)
    for cut_at in range(operations // NUM_CUTS // 2, operations, operations // NUM_CUTS):
        run, note = begun(f"cut-{cut_at}"), tmp_path / f"note-{cut_at}"
        assert forked(lambda run=run, at=cut_at, note=note: cut_off(run, at, note)) == CUT
        lose_what_was_not_synced(run.store.root, note)
        assert forked(lambda run=run: drive(run)) == 0, f"cut off before operation {cut_at}"
        assert outcome(run) == expected, f"cut off before operation {cut_at}"
        shared_memory.remove_folder(run.store.root)
    shared_memory.remove_folder(whole.store.root)


def count(run, counted):
    watched = Watched(run.store.root)
    drive(run)
    counted.write_text(str(watched.operations))


def cut_off(run, cut_at, note):
    Watched(run.store.root, cut_at, note)
    drive(run)


def drive(run):
    """As the flow does: it samples the next step before it saves, and has noted steps done."""
    noted = run.store.root.with_suffix(".steps")
    actor = run.actor()
    ready = actor.prepare(step=int(noted.read_text()) if noted.exists() else 0)
    for step in range(ready.step, NUM_STEPS):
        run.train(actor, [step])
        if step + 1 < NUM_STEPS:
            run.request(step + 1)
        if (step + 1) % KEPT.save_steps == 0:
            actor.checkpoint(step=step + 1, best_score=None)
        noted.write_text(str(step + 1))
    actor.save_final()


def outcome(run):
    """The final model, what each step gave, and that nothing half-written is left."""
    final = {path.name: digest_file(path) for path in run.store.path("final").iterdir()}
    steps = run.store.numbered("steps")
    results = [(folder / "result.json").read_bytes() for _, folder in steps]
    left = [*run.store.path("weights").glob(".*"), *run.store.path("checkpoints").glob(".*")]
    return final, results, left


def forked(work):
    """The exit code of a process that does this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
