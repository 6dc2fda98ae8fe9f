"""mortal_steps.data.shared: one copy of a large file for all runs that begin with it."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mortal_steps.config import DataConfig, RunConfig
from mortal_steps.data import dataset_fingerprint, load_problems, shared
from mortal_steps.data.kept import (
    check_problem_file,
    keep_problems,
    open_problems,
)
from mortal_steps.data.problem_files import ProblemFile
from mortal_steps.data.shared import clean_up, read_or_share
from mortal_steps.data.shared_entries import EntryLock
from mortal_steps.store import RunStore
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem


@pytest.fixture
def large(letters: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A configuration whose ten letters count as a large file."""
    monkeypatch.setattr(shared, "SHARED_FROM", 1)
    return RunConfig(runs_dir="runs", data=DataConfig(source=letters, eval_samples=3))


def read(config: RunConfig) -> tuple[ProblemFile, list[Problem]]:
    Path(config.runs_dir).mkdir(exist_ok=True)
    train, held_out = read_or_share(config, Scratch())
    return train, list(held_out)


def test_a_large_file_is_read_once_for_all_runs(large: RunConfig) -> None:
    first, held_out = read(large)
    stamp = first.path.stat().st_mtime_ns
    again, held_out_again = read(large.model_copy(update={"seed": 5}))
    assert again.path == first.path
    assert again.path.stat().st_mtime_ns == stamp
    assert (list(first), held_out) == (list(again), held_out_again)
    assert (list(first), held_out) == load_problems(large.data, 0)
    assert again.fingerprint == dataset_fingerprint(list(first))
    other = large.model_copy(update={"data": DataConfig(source=large.data.source)})
    assert read(other)[0].path != first.path


def test_a_run_needs_neither_the_large_file_nor_what_is_shared(large: RunConfig) -> None:
    train, held_out = read(large)
    store = RunStore(Path("runs/run"))
    ref, _ = keep_problems(store, train, held_out)
    expected = list(train)
    assert store.path(ref.path).samefile(train.path)
    Path(large.data.source).unlink()
    for path in sorted(Path("runs/.data").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    check_problem_file(store, ref)
    assert list(open_problems(store, ref)) == expected


def test_a_changed_file_is_other_data_and_a_damaged_copy_is_made_again(
    large: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    path = read(large)[0].path
    path.write_bytes(b"damaged")
    mended, _ = read(large)
    assert mended.path == path
    assert len(list(mended)) == 7
    assert "the dataset is read again" in caplog.text
    with Path(large.data.source).open("a") as file:
        file.write('{"prompt": "new=", "answer": 1}\n')
    assert len(read(large)[0]) == 8


def entries() -> list[str]:
    return sorted(path.name for path in Path("runs/.data").iterdir())


def test_what_no_run_links_to_is_removed_when_another_begins(large: RunConfig) -> None:
    train, held_out = read(large)
    store = RunStore(Path("runs/run"))
    keep_problems(store, train, held_out)
    key = train.path.parent.name
    del train
    clean_up(large)
    assert entries() == [f".{key}.lock", key], "a run links to it"
    shutil.rmtree(store.root)
    killed = Path(f"runs/.data/.{key}.1a2b3c4d.partial")
    killed.mkdir()
    clean_up(large)
    assert entries() == []
    assert len(read(large)[0]) == 7, "read again"


def test_what_a_run_begins_with_is_not_removed(large: RunConfig) -> None:
    """Before it has a link: the checks of a start may take minutes."""
    train, _ = read(large)
    again, held_out = read(large)  # shared, so the second one did not wait for the first
    del train
    clean_up(large)
    keep_problems(RunStore(Path("runs/run")), again, held_out)
    assert len(list(again)) == 7


def test_a_run_that_waits_for_a_removal_makes_the_entry_again(large: RunConfig) -> None:
    train, _ = read(large)
    cache, key = RunStore(Path("runs/.data").absolute()), train.path.parent.name
    del train
    removing, waiting = EntryLock(cache, key), EntryLock(cache, key)
    assert removing.try_alone()
    assert not waiting.try_alone()
    with ThreadPoolExecutor() as threads:
        beginning = threads.submit(read, large)
        shutil.rmtree(cache.path(key))
        cache.path(f".{key}.lock").unlink()
        removing.release()
        assert len(beginning.result(timeout=60)[0]) == 7
    assert not waiting.try_alone(), "the run begins with the lock that is there now"


def test_a_small_file_is_not_shared(letters: str) -> None:
    config = RunConfig(runs_dir="runs", data=DataConfig(source=letters))
    scratch = Scratch()
    train, _ = read_or_share(config, scratch)
    assert train.path.parent == scratch.path
    assert not Path("runs").exists()
