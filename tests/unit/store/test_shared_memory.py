"""A run's folder in shared memory: whose it is, and when it may go."""

from __future__ import annotations

import shutil

import pytest

from mortal.maintenance import gc
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.open_run import create_run
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs import lease
from mortal_steps.store import RunStore, shared_memory


@pytest.fixture
def run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shared_memory.make_folder(run)
    yield run
    shutil.rmtree(shared_memory.folder_of(run), ignore_errors=True)


def test_each_run_has_a_folder_of_its_own(run, tmp_path):
    folder = shared_memory.folder_of(run)
    assert (folder, run) in list(shared_memory.folders())
    assert shared_memory.folder_of(tmp_path / "other") != folder
    shared_memory.make_folder(run)
    shared_memory.remove_folder(run)
    assert not folder.exists()
    shared_memory.remove_folder(run)


def test_a_link_in_its_place_is_refused(run, tmp_path):
    folder = shared_memory.folder_of(run)
    shared_memory.remove_folder(run)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    try:
        with pytest.raises(ConfigError, match="belongs to another user"):
            shared_memory.make_folder(run)
        shared_memory.remove_folder(run)
        assert (tmp_path / "elsewhere").exists()
    finally:
        folder.unlink()


def test_gc_removes_what_a_killed_run_has_left(run, tmp_path):
    folder = shared_memory.folder_of(run)

    def items():
        return [item for item in gc.plan(tmp_path).items if str(folder) in item.what]

    driven = lease.acquire(RunStore(run))
    assert not items()
    driven.release()
    (item,) = items()
    item.remove()
    assert not folder.exists()


def test_gc_removes_what_a_removed_run_has_left(run, tmp_path):
    run.rmdir()
    folder = shared_memory.folder_of(run)
    assert [item for item in gc.plan(tmp_path).items if str(folder) in item.what]


def test_a_new_run_finds_nothing_of_a_killed_one_whose_directory_is_gone(run, tmp_path):
    (shared_memory.folder_of(run) / "weights").mkdir()
    run.rmdir()
    config = RunConfig.model_validate({"run_id": run.name, "runs_dir": str(tmp_path)})
    create_run(run, config, [], [])
    assert not shared_memory.folder_of(run).exists()
