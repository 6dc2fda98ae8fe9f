"""Rollouts that are not kept are deleted, whatever episodes have left beside them."""

from mortal_steps.policy.on_disk.rollout_files import prune_rollouts, pruned_before
from mortal_steps.store import RunStore

STAYS = {"journal.json", "result.json"}


def test_all_files_and_folders_of_a_step_go_but_its_chain(tmp_path):
    for step in range(3):
        calls = tmp_path / f"steps/{step:06d}/generations-0-calls/begun/turns-6ae2"
        calls.mkdir(parents=True)
        (calls / "a.jsonl").touch()
        for name in (*STAYS, "generations-0.parquet"):
            (tmp_path / f"steps/{step:06d}" / name).touch()
    store = RunStore(tmp_path)
    prune_rollouts(store, done=3, keep=1, checkpoints=[2, 3])
    left = [{path.name for path in folder.iterdir()} for _, folder in store.numbered("steps")]
    assert left[:2] == [STAYS, STAYS]
    assert left[2] == {*STAYS, "generations-0.parquet", "generations-0-calls"}
    assert pruned_before(store) == 2
