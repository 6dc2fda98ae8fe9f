"""A driver that is killed while a checkpoint is written beside its train steps, or while it writes
its last report."""

import threading

import pytest

from mortal_steps.orchestration import driver
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.report.log_repair import mend_complete
from mortal_steps.report.report_files import PICTURE
from mortal_steps.report.summary import PAGE
from mortal_steps.runs.lease import acquire
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


def test_a_complete_run_gets_its_last_report_from_whoever_resumes_it(tmp_path):
    def killed(run):
        if run.manifest.status == "completed":
            raise Killed

    config = project_config(tmp_path, **{"training.max_steps": 2})
    with bare_in(tmp_path) as patch:
        patch.setattr(driver, "write_report", killed)
        with pytest.raises(Killed):
            go_on(config)
    run = find_run(tmp_path / "runs", "run")
    page, left = run.store.path(PAGE), run.store.path(f".{PICTURE}.0123abcd.partial")
    left.touch()
    assert run.is_complete() and "completed" not in page.read_text()
    lease = acquire(run.store)
    mend_complete(run)  # nothing, as the process that completed the run may be writing it
    lease.release()
    assert "completed" not in page.read_text()
    mend_complete(run)
    assert "completed" in page.read_text() and not left.exists()
    written = page.stat().st_mtime_ns
    mend_complete(run)
    assert page.stat().st_mtime_ns == written
