"""Whole models of what a run directory holds, which stay while its run goes on."""

import errno
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.errors import CorruptFileError, DiskError, StoreError
from mortal_steps.policy.model_files import exporting as in_process
from mortal_steps.serving import exporting
from mortal_steps.serving.models import choose
from mortal_steps.serving.whole import copy_files, find_whole, whole_model
from mortal_steps.store.files import locked
from tests.support.refused import refused
from tests.support.saved_models import begun, commit

EXPORT = '{"base": null, "dtype": "float32", "trust_remote_code": false}'


@pytest.mark.parametrize("status", ["running", "failed"])
def test_a_model_that_is_served_stays_when_its_run_goes_on_or_is_continued(tmp_path, status):
    run = begun(tmp_path)
    commit(run, "weights/v5")
    run.update(status=status)
    saved, path = find_whole(run, None)
    assert (saved.step, saved.path) == (5, "weights/v5")
    run.store.remove_folder("weights/v5")
    assert (run.store.path(path) / "model.safetensors").read_text() == "weights/v5"
    run.store.verify_folder(path, run.store.folder_digest(path))


def test_nothing_is_written_to_a_run_that_has_ended(tmp_path):
    run = begun(tmp_path)
    commit(run, "weights/v5")
    run.update(status="completed")
    assert whole_model(run, choose(run, None)) == "weights/v5"
    assert not run.store.path("exported").exists()


def test_a_run_that_cannot_be_written_is_served_in_place(tmp_path, caplog):
    """It may be a colleague's, in a folder that is there to read."""
    run = begun(tmp_path)
    commit(run, "weights/v5")
    run.update(status="failed")
    run.store.path("exported/lock").mkdir(parents=True)  # which root cannot write either
    with caplog.at_level(logging.WARNING):
        saved, path = find_whole(run, None)
    assert path == saved.path == "weights/v5"
    assert "weights/v5 is used in place; if the run goes on meanwhile" in caplog.text


def test_what_is_copied_is_whole_although_it_is_removed_meanwhile(tmp_path, monkeypatch):
    """Whoever goes on may remove all files once the first of them is copied."""
    names = ["a.safetensors", "b.safetensors"]
    source = tmp_path / "weights"
    source.mkdir()
    for name in names:
        (source / name).write_text(name)

    def removing(copy):
        def called(*given):
            shutil.rmtree(source, ignore_errors=True)
            copy(*given)

        return called

    for name in ("copyfile", "copyfileobj"):
        monkeypatch.setattr(shutil, name, removing(getattr(shutil, name)))
    copy_files([source / name for name in names], tmp_path / "model")
    assert [(tmp_path / "model" / name).read_text() for name in names] == names


def test_a_file_that_is_missing_is_named(tmp_path):
    with refused(CorruptFileError, "a.safetensors is missing"):
        copy_files([tmp_path / "a.safetensors"], tmp_path / "model")


def test_a_full_disk_ends_an_export_although_its_model_has_gone(tmp_path, monkeypatch):
    """As where the run goes on: its next model would not fit either."""
    run = begun(tmp_path)
    commit(run, "weights/v5")

    def full(*given):
        commit(run, "weights/v6")
        run.store.remove_folder("weights/v5")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DiskError):
        exporting.export(run, tmp_path / "model", step=None, dtype=None, adapter_alone=False)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, DiskError), (errno.EACCES, StoreError)]
)
def test_the_process_of_an_export_says_that_its_folder_cannot_be_written(
    tmp_path, monkeypatch, capsys, number, error
):
    def failing(*given):
        raise OSError(number, os.strerror(number), str(tmp_path / "model" / "a.safetensors"))

    monkeypatch.setattr(in_process, "export_model", failing)
    with pytest.raises(SystemExit) as ended:
        in_process.main(str(tmp_path), str(tmp_path / "model"), EXPORT)
    assert in_process.UNWRITTEN[ended.value.code] is error
    assert "model" in capsys.readouterr().err.splitlines()[-1]


def test_commands_that_want_the_same_model_leave_it_to_one(tmp_path, caplog):
    run = begun(tmp_path)
    commit(run, "weights/v5")
    run.acquire()
    run.update(status="running")
    saved = choose(run, None)
    digest = run.store.folder_digest(saved.path)
    others = run.store.path(f"exported/.step-5-{digest[:12]}.x.partial")
    with ThreadPoolExecutor() as threads:
        with locked(run.store.path("exported/lock")):
            others.mkdir()
            waits = threads.submit(whole_model, run, saved)
            with pytest.raises(TimeoutError):
                waits.result(timeout=1.3)
            assert "waits for another command's export, which holds" in caplog.text
            assert others.exists(), "what another command writes stays"
        assert run.store.path(waits.result(timeout=9)).is_dir()
    assert not others.exists(), "nobody writes it any more"
