"""The store: whole or not at all, and never altered unnoticed."""

import errno
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.errors import CorruptFileError, DiskError, EngineError, StoreError
from mortal_steps.store import RunStore, digests, run_store
from mortal_steps.store.files import delete_folder, digest_file, link_file, write_atomically
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.types import Completion, FileRef, PolicyVersion, Problem
from tests.support.damage import flip_a_byte
from tests.support.refused import refused


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run")


def completion(logprobs):
    return Completion(
        token_ids=[1] * len(logprobs),
        logprobs=logprobs,
        text="é\n",
        finish_reason="stop",
        seed=2**63 - 1,
        policy_version=PolicyVersion(3),
    )


@given(logprobs=st.lists(st.floats(-100, 0), max_size=8))
def test_floats_come_back_to_the_bit(tmp_path_factory, logprobs):
    store = RunStore(tmp_path_factory.mktemp("run"))
    ref = store.write_record("a/b.json", completion(logprobs), Completion)
    assert store.read_record(ref, Completion).logprobs == logprobs


def test_columns_of_any_json_shape_come_back(store):
    problem = Problem(
        id="train-0",
        prompt=[{"role": "user", "content": "1 + 1"}],
        columns={"answer": "2", "metadata": {"x": [1, 2.5, None]}},
    )
    ref = store.write_record("p.json", [problem], list[Problem])
    assert store.read_record(ref, list[Problem]) == [problem]
    assert store.find_record("p.json", list[Problem]) == (ref, [problem])
    assert store.find_record("none.json", list[Problem]) is None


def test_every_flipped_bit_of_a_record_is_noticed(store):
    ref = store.write_record("r.json", completion([-0.5]), Completion)
    path = store.path("r.json")
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"r\.json"):  # of a newer format, it seems, or damaged
            store.read_record(ref, Completion)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match=r"r\.json"):
            store.read_record(ref, Completion)
    path.unlink()
    with refused(CorruptFileError, "r.json", "missing"):
        store.read_record(ref, Completion)


def test_a_replaced_record_is_not_the_one_referred_to(store):
    ref = store.write_record("r.json", completion([-0.5]), Completion)
    store.write_record("r.json", completion([-0.25]), Completion)
    with refused(CorruptFileError, "r.json", "replaced"):
        store.read_record(ref, Completion)


def test_a_record_of_another_kind_is_refused(store):
    ref = store.write_record("r.json", completion([-0.5]), Completion)
    with pytest.raises(CorruptFileError, match="is no FileRef"):
        store.read_record(ref, FileRef)


def test_folders_appear_whole_or_not_at_all(store):
    with pytest.raises(ZeroDivisionError), store.committing_folder("weights/v1") as folder:
        (folder / "half").write_text("x")
        raise ZeroDivisionError
    assert list(store.path("weights").iterdir()) == []
    with store.committing_folder("weights/v1") as folder:
        (folder / "a").write_text("a")
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_text("b")
    digest = store.folder_digest("weights/v1")
    assert store.verify_folder("weights/v1", digest) == store.path("weights/v1")
    with store.committing_folder("weights/v1") as folder:
        (folder / "a").write_text("other")
    assert store.folder_digest("weights/v1") != digest
    assert sorted(os.listdir(store.path("weights"))) == ["v1"]
    store.remove_folder("weights/v1")
    assert list(store.path("weights").iterdir()) == []


@pytest.mark.parametrize("victim", ["a", "sub/b", "manifest.json"])
def test_damage_in_a_folder_is_named(store, victim):
    with store.committing_folder("w") as folder:
        (folder / "a").write_text("a")
        (folder / "sub").mkdir()
        (folder / "sub" / "b").write_text("b")
    digest = store.folder_digest("w")
    path = store.path("w") / victim
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(CorruptFileError, match=victim):
        store.verify_folder("w", digest)
    path.unlink()
    with pytest.raises(CorruptFileError, match="missing"):
        store.verify_folder("w", digest)


def test_a_failed_write_names_the_file_and_leaves_nothing(tmp_path):
    (tmp_path / "target").mkdir()
    with refused(StoreError, "cannot write", "target"):
        write_atomically(tmp_path / "target", b"x")
    assert os.listdir(tmp_path) == ["target"]


def test_a_file_elsewhere_that_cannot_be_read_is_named_and_not_the_folder(tmp_path):
    store = RunStore(tmp_path)
    with (
        pytest.raises(FileNotFoundError, match=r"no such\.json"),
        store.committing_folder("models/w") as folder,
    ):
        shutil.copy(tmp_path / "no such.json", folder)
    with (
        refused(StoreError, "cannot write", "models/w"),
        store.committing_folder("models/w") as folder,
    ):
        (folder / "missing" / "file").write_bytes(b"")
    (tmp_path / "file").write_bytes(b"")
    with (
        refused(StoreError, "cannot write", "file/w"),
        store.committing_folder("file/w"),
    ):
        pass


def test_a_linked_file_goes_its_own_way_and_is_copied_where_it_cannot_be_linked(tmp_path):
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    source.write_text("old")
    link_file(source, target)
    assert source.samefile(target)
    write_atomically(source, b"new")
    assert target.read_text() == "old"
    with refused(CorruptFileError, "missing is missing"):
        link_file(tmp_path / "missing", tmp_path / "other")
    with refused(StoreError, "cannot write", "target"):
        link_file(source, target / "below")
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        link_file(source, Path(folder) / "copy")
        assert (Path(folder) / "copy").read_text() == "new"


def test_a_folder_is_hashed_once_in_a_process_and_again_where_it_was_changed(store, monkeypatch):
    hashed, digest = [], digests.digest_of_file
    with store.committing_folder("weights/v1") as folder:
        for name in ("b", "c"):
            (folder / name).write_bytes(b"b" * 1000)
            os.utime(folder / name, (1, 1))  # not changed within the last tick of the clock
    for module in (run_store, digests):
        monkeypatch.setattr(
            module, "digest_of_file", lambda path: hashed.append(path.name) or digest(path)
        )
    sha256 = store.folder_digest("weights/v1")
    store.verify_folder("weights/v1", sha256)
    assert hashed == []  # but when they were committed
    flip_a_byte(store.path("weights/v1/b"))
    with refused(CorruptFileError, "weights/v1/b", "damaged"):
        store.verify_folder("weights/v1", sha256)
    assert hashed == ["b"]
    store.remove_folder("weights/v1")
    with store.committing_folder("weights/v1") as folder:
        (folder / "c").write_bytes(b"c" * 1000)
    store.verify_folder("weights/v1", store.folder_digest("weights/v1"))  # the new one


def test_a_digest_of_a_newer_version_is_no_damage(store):
    with store.committing_folder("weights/v1") as folder:
        (folder / "model").write_bytes(b"weights")
    manifest = store.path("weights/v1/manifest.json")
    manifest.write_text(manifest.read_text().replace("blake3:", "blake9:"))
    with pytest.raises(CorruptFileError, match="blake9:"):
        store.verify_folder("weights/v1", digest_file(manifest))


def test_damage_found_beside_a_block_is_what_is_raised(store):
    with store.committing_folder("weights/v1") as folder:
        (folder / "model").write_bytes(b"weights")
    sha256 = store.folder_digest("weights/v1")
    with (
        pytest.raises(EngineError, match="too large"),
        store.verifying_folder("weights/v1", sha256),
    ):
        raise EngineError("too large")
    flip_a_byte(store.path("weights/v1/model"))
    with (
        refused(CorruptFileError, "weights/v1/model", "damaged"),
        store.verifying_folder("weights/v1", sha256),
    ):
        raise EngineError("what was read makes no sense")
    with (
        refused(CorruptFileError, "weights/v1/model", "damaged"),
        store.verifying_folder("weights/v1", sha256, but=["model"]),
    ):
        raise EngineError("what was read makes no sense")
    with store.verifying_folder("weights/v1", sha256, but=["model"]):
        pass  # the block has compared it
    store.path("weights/v1/model").unlink()
    with (
        pytest.raises(CorruptFileError, match="missing"),
        store.verifying_folder("weights/v1", sha256),
    ):
        raise AssertionError("begun with a file missing")


def test_a_folder_synced_beside_other_work_is_there_at_once(store):
    sync = BackgroundSync()
    for version in (1, 2):
        with store.committing_folder(f"weights/v{version}", sync=sync) as folder:
            (folder / "model").write_bytes(b"weights")
        store.verify_folder(f"weights/v{version}", store.folder_digest(f"weights/v{version}"))
        store.remove_folder(f"weights/v{version}", sync=sync)  # while it may still be synced
        assert not store.path(f"weights/v{version}").exists()
    sync.finish()
    sync.finish()
    assert os.listdir(store.path("weights")) == []


def test_a_folder_may_be_deleted_twice_at_once(tmp_path):
    with ThreadPoolExecutor(2) as threads:
        for number in range(5):
            doomed = tmp_path / str(number)
            doomed.mkdir()
            for name in range(200):
                (doomed / str(name)).touch()
            list(threads.map(delete_folder, [doomed, doomed]))
            assert not doomed.exists()


def commit(store, relative):
    with store.committing_folder(relative) as folder:
        (folder / "a").write_bytes(b"a")


@pytest.mark.parametrize("fault", ["os.fsync", "pathlib.Path.mkdir", "pathlib.Path.rename"])
def test_a_disk_that_fails_while_a_folder_is_committed_is_an_error_of_the_disk(
    store, fault, monkeypatch
):
    def fail(*arguments, **options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fault, fail)
    with refused(DiskError, "weights/v1", "disk", "mortal resume"):
        commit(store, "weights/v1")
    monkeypatch.undo()
    assert not store.path("weights/v1").exists()
    commit(store, "weights/v1")
    assert store.folder_files("weights/v1").keys() == {"a"}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("fault", ["pathlib.Path.rename", "shutil.rmtree"])
def test_a_disk_that_fails_while_a_folder_is_deleted_is_an_error_of_the_disk(
    store, fault, number, monkeypatch
):
    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    commit(store, "old")
    monkeypatch.setattr(fault, fail)
    with refused(DiskError, "cannot write", "old", "mortal resume"):
        store.remove_folder("old")
    monkeypatch.undo()
    store.remove_leftovers("")
    store.remove_folder("old")
    assert os.listdir(store.root) == []


def test_a_library_that_names_the_fault_of_the_disk_in_its_text_alone_is_understood(store):
    with (
        refused(DiskError, "weights/v1", "disk"),
        store.committing_folder("weights/v1"),
    ):
        raise ValueError("Error while serializing: Input/output error (os error 5)")
    with pytest.raises(ValueError, match="no fault"), store.committing_folder("weights/v1"):
        raise ValueError("no fault of the disk")


LARGE = os.urandom(run_store.SHARED_BYTES)


def commit_shared(store, name, content, small=b"{}"):
    with store.committing_folder(name, shared_with=["gone", "first"]) as folder:
        (folder / "large.bin").write_bytes(content)
        (folder / "small.json").write_bytes(small)
    return store.path(name)


@pytest.fixture
def first(store):
    with store.committing_folder("first") as folder:
        (folder / "other-name.bin").write_bytes(LARGE)
        (folder / "small.json").write_bytes(b"{}")
    return store.path("first") / "other-name.bin"


def test_the_disk_has_a_large_file_of_two_folders_once(store, first):
    second = commit_shared(store, "second", LARGE)
    assert (second / "large.bin").samefile(first)
    assert not (second / "small.json").samefile(first.with_name("small.json"))
    assert {path.name for path in second.iterdir()} == {"large.bin", "small.json", "manifest.json"}
    store.remove_folder("first")
    store.verify_folder("second", store.folder_digest("second"))


def test_another_file_is_no_link(store, first):
    second = commit_shared(store, "second", LARGE[::-1])
    assert not (second / "large.bin").samefile(first)


def test_a_good_copy_is_not_given_up_for_a_damaged_one(store, first):
    """Also where the damage left the time of the last change as it was."""
    look = first.stat()
    flip_a_byte(first)
    os.utime(first, ns=(look.st_atime_ns, look.st_mtime_ns))
    second = commit_shared(store, "second", LARGE)
    assert (second / "large.bin").read_bytes() == LARGE
    store.verify_folder("second", store.folder_digest("second"))
    assert list(RunStore(store.root).check_folder("first"))[1][1] is not None, "still noticed"


def test_a_file_system_without_links_has_it_twice(store, first, monkeypatch):
    def refuse(path, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    second = commit_shared(store, "second", LARGE)
    assert (second / "large.bin").read_bytes() == LARGE
    assert not (second / "large.bin").samefile(first)


def test_damage_of_a_shared_file_is_noticed_in_each_folder(store, first):
    second = commit_shared(store, "second", LARGE)
    flip_a_byte(second / "large.bin")
    fresh = RunStore(store.root)
    for name in ("first", "second"):
        assert any(damage for _, damage in fresh.check_folder(name))
