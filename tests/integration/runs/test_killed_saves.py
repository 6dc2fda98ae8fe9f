"""A driver that is killed while a checkpoint is written beside its train steps."""

import threading

import pytest

from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.runs.run import find_run
from tests.support.bare_flow import Killed, bare_in, go_on, project_config


def test_the_run_goes_on_before_it_and_ends_with_the_same_bits_and_checkpoints(tmp_path):
    killed, save = threading.Event(), checkpoints.save

    def never_done(*args, **kwargs):
        if threading.current_thread() is threading.main_thread():
            return save(*args, **kwargs)
        killed.wait(60)
        raise SystemExit

    config = project_config(tmp_path, **{"rollout.staleness": 1})
    with bare_in(tmp_path) as patch:
        whole = go_on(config.model_copy(update={"run_id": "whole"}))
        patch.setattr(checkpoints, "save", never_done)
        with pytest.raises(Killed):
            go_on(config, killed_after=3)
        killed.set()
        patch.setattr(checkpoints, "save", save)
        left = find_run(whole.store.root.parent, "run").manifest
        assert (left.step, left.checkpoints) == (1, ())  # two steps are done since
        run = go_on(config)
        one, other = run.manifest, whole.manifest
        assert one.final == other.final
        assert (one.best_step, one.best_reward) == (other.best_step, other.best_reward)
        same = [[saved.sha256 for saved in each.checkpoints] for each in (one, other)]
        assert same[0] == same[1]
        assert run.metrics() == whole.metrics() != []
        assert [row["stage"] for row in run.timings()].count("checkpoint") == 3
