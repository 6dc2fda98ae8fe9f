"""`mortal gc`: which runs may go, and how they do."""

import dataclasses
import os
import time

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal.maintenance import gc as removal
from mortal.maintenance.gc import carry_out, plan
from mortal_steps.errors import StoreError
from mortal_steps.plan.loader import parse_config
from mortal_steps.registry.registry import Registry, in_use
from mortal_steps.runs import lease
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.retention import DAY_S
from mortal_steps.runs.run import find_run, list_runs
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.files import digest_file
from mortal_steps.types import Checkpoint, FinalModel, Problem, StageTiming
from mortal_steps.types.identity import Parent, RunInfo
from tests.support.registry import decide, model_files

STEPS = 8
TIMING = StageTiming(stage="checkpoint", step=0)


def begun(folder, run_id, days=0.0, parent=None, **settings):
    """A completed run of eight steps, on the disk."""
    store = RunStore(folder / "runs" / run_id)
    config = parse_config({"run_id": run_id, **settings})
    origin = parent and Parent(
        run_id=parent.info.run_id,
        uid=parent.info.uid,
        step=4,
        state_id="s",
        history_id="s",
        fingerprint="f",
    )
    info = write_identity(store, config, [Problem(id="p", prompt="a")], [], origin)
    info = dataclasses.replace(info, created_at=info.created_at - days * DAY_S)
    store.write_record("run.json", info, RunInfo)
    for step in range(STEPS):
        store.path(f"steps/{step:06d}").mkdir(parents=True)
        for name in ("batch.json", "journal.json", "result.json"):
            store.path(f"steps/{step:06d}/{name}").write_text("x" * 5000)
    saved = [
        Checkpoint(step=at, path="c", sha256="0", state_id="s", timing=TIMING) for at in (4, STEPS)
    ]
    manifest = RunManifest(
        status="completed",
        step=STEPS,
        checkpoints=tuple(saved),
        final=FinalModel(
            path="final", sha256="0", weights_sha256="0", merged_path=None, merged_sha256=None
        ),
        updated_at=time.time() - days * DAY_S,
    )
    store.write_record(MANIFEST_FILE, manifest, RunManifest)
    return find_run(store.root.parent, run_id)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def left(runs):
    return [run.info.run_id for run in list_runs(runs)]


def test_nothing_goes_of_runs_that_say_nothing(runs, tmp_path):
    begun(tmp_path, "old", 999)
    assert plan(runs).items == ()


def test_a_run_of_a_newer_version_stays(runs, tmp_path):
    """Its configuration has a key that this version does not know."""
    newer, known = (begun(tmp_path, name, 9) for name in ("newer", "known"))
    file = newer.store.path("config.toml")
    file.write_text(f"of_tomorrow = 1\n{file.read_text()}")
    info = dataclasses.replace(newer.info, config_sha256=digest_file(file))
    newer.store.write_record("run.json", info, RunInfo)
    planned = plan(runs, keep_days=1)
    (item,) = planned.items
    assert known.info.run_id in item.what
    assert any("of_tomorrow" in kept for kept in planned.kept)


def test_each_run_goes_when_its_own_settings_say_so(runs, tmp_path):
    begun(tmp_path, "short", 3, retention={"keep_days": 2})
    begun(tmp_path, "long", 3, retention={"keep_days": 20})
    planned = plan(runs)
    assert left(runs) == ["short", "long"], "a plan changes nothing"
    (item,) = planned.items
    assert "run short: completed, step 8, 3 d old" in item.what
    assert item.num_bytes > STEPS * 3 * 4096
    said = []
    assert carry_out(planned, runs, said.append)
    assert left(runs) == ["long"]
    assert said[0].startswith("removed run short")


def test_a_fork_and_a_run_on_its_model_keep_what_they_go_back_to(runs, tmp_path):
    parent, base = begun(tmp_path, "parent", 99), begun(tmp_path, "base", 99)
    begun(tmp_path, "fork", 1, parent)
    begun(tmp_path, "student", 1, model={"name_or_path": "runs/base/final"})
    begun(tmp_path, "alone", 99)
    planned = plan(runs, keep_days=30)
    assert [item.what.split()[1] for item in planned.items] == ["alone:"]
    assert len(planned.kept) == 2
    assert base.info.run_id in planned.kept[0] + planned.kept[1]


def test_what_a_remaining_run_goes_back_to_stays_over_any_number_of_forks(runs, tmp_path):
    first = begun(tmp_path, "first", 99)
    second = begun(tmp_path, "second", 98, first)
    third = begun(tmp_path, "third", 97, second)

    def going(**options):
        return [item.what.split()[1] for item in plan(runs, keep_days=30, **options).items]

    assert going() == ["third:", "second:", "first:"], "forks go first"
    assert going(protected={"second"}) == ["third:"]
    begun(tmp_path, "new", 1, third)
    assert going() == []


def test_a_file_that_another_run_has_too_frees_nothing(runs, tmp_path):
    one, other = begun(tmp_path, "one", 99), begun(tmp_path, "other", 99)
    shared = one.store.path("big")
    shared.write_bytes(os.urandom(1_000_000))
    (item,) = plan(runs, keep_days=30, protected=["other"]).items
    assert item.num_bytes > 1e6
    os.link(shared, other.store.path("big"))
    (item,) = plan(runs, keep_days=30, protected=["other"]).items
    assert item.num_bytes < 1e6


def test_a_run_that_is_going_is_not_touched(runs, tmp_path):
    begun(tmp_path, "going", 99)
    planned = plan(runs, keep_days=30)
    lease = acquire(RunStore(runs / "going"))
    try:
        assert plan(runs, keep_days=30).kept == ("going: it is going",)
        said = []
        assert not carry_out(planned, runs, said.append), "it began after the plan was made"
        assert "in use by process" in said[0]
    finally:
        lease.release()
    assert left(runs) == ["going"]


def test_a_run_that_went_on_since_the_plan_stays(runs, tmp_path):
    run = begun(tmp_path, "run", 99)
    planned = plan(runs, keep_days=30)
    find_run(runs, "run").update(step=STEPS)
    with pytest.raises(StoreError, match="went on meanwhile"):
        planned.items[0].remove()
    assert left(runs) == ["run"]
    acquire(run.store).release()


def test_a_removal_that_is_killed_leaves_no_half_of_a_run(runs, tmp_path, monkeypatch):
    begun(tmp_path, "old", 99)

    def killed(trash):
        next(trash.glob("steps/*/batch.json")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(removal, "remove_trash", killed)
        with pytest.raises(KeyboardInterrupt):
            plan(runs, keep_days=30).items[0].remove()
    assert left(runs) == []
    again = plan(runs)
    assert "left by a removal that was killed" in again.items[0].what
    assert carry_out(again, runs, lambda line: None)
    assert [path.name for path in runs.iterdir()] == [".gc.lock"]


def test_a_resume_that_waited_for_the_removal_makes_no_new_run(runs, tmp_path):
    run = begun(tmp_path, "old", 99)
    shared_memory.make_folder(run.store.root)
    opened = lease._open_lock(run.store)
    removal.remove_run(run)
    assert not shared_memory.folder_of(run.store.root).exists()
    with pytest.raises(StoreError, match="run old was removed"):
        lease._lock_or_refuse(run.store, opened)
    os.close(opened)
    assert not run.store.root.exists()


def test_what_another_gc_is_removing_is_left_to_it(runs, tmp_path):
    begun(tmp_path, "old", 99)
    planned = plan(runs, keep_days=30)

    def meanwhile(line):
        with pytest.raises(StoreError, match="another `mortal gc`"):
            carry_out(plan(runs), runs, lambda line: None)

    assert carry_out(planned, runs, meanwhile)


@pytest.mark.parametrize("folder", [".", "another"])
def test_the_run_of_a_model_in_production_stays_and_so_do_those_it_comes_from(
    runs, tmp_path, monkeypatch, folder
):
    """Also where `mortal gc` is called in another folder than the project's."""
    parent = begun(tmp_path, "parent", 99)
    begun(tmp_path, "champion", 99, parent)
    begun(tmp_path, "old", 99)
    registry = Registry(tmp_path / "models", "letters")
    version = registry.add(**model_files(tmp_path / "model", "champion"))
    decide(registry, "promoted", version)
    (tmp_path / "another").mkdir()
    monkeypatch.chdir(folder)
    options = ["--runs-dir", str(runs), "--older-than", "30", "--delete"]
    done = CliRunner().invoke(app, ["gc", *options])
    assert done.exit_code == 0, done.output
    assert "stays: champion: it is protected" in done.output
    assert "stays: parent: run champion, which stays, goes back to it" in done.output
    assert sorted(left(runs)) == ["champion", "parent"]


def test_a_model_that_was_in_production_is_there_for_a_rollback_when_its_run_is_gone(
    runs, tmp_path
):
    registry, before = Registry(tmp_path / "models", "letters"), None
    for run_id in ("first", "second", "third"):
        run = begun(tmp_path, run_id, 99)
        files = model_files(run.store.path("final"), run_id, content=run_id)
        version = registry.add(**files)
        decide(registry, "promoted", version, before=before)
        before = version.id
    done = CliRunner().invoke(app, ["gc", "--older-than", "30", "--delete"])
    assert (done.exit_code, left(runs)) == (0, ["third"]), done.output
    used = in_use(registry.history())
    assert [version.run_id for version in used] == ["first", "second", "third"]
    for run_id in ("second", "first"):
        back = CliRunner().invoke(app, ["rollback", "letters"])
        assert back.exit_code == 0, back.output
        assert (registry.link / "model.safetensors").read_text() == run_id
