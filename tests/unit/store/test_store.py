"""The store: whole or not at all, and never altered unnoticed."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import RunStore
from mortal_steps.store.files import link_file, write_atomically
from mortal_steps.types import Completion, FileRef, PolicyVersion, Problem


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
    assert store.read_record(ref, Completion) == completion(logprobs)


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
    with pytest.raises(CorruptFileError, match=r"r\.json is missing"):
        store.read_record(ref, Completion)


def test_a_replaced_record_is_not_the_one_referred_to(store):
    ref = store.write_record("r.json", completion([-0.5]), Completion)
    store.write_record("r.json", completion([-0.25]), Completion)
    with pytest.raises(CorruptFileError, match="it was replaced after it was committed"):
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
    with pytest.raises(StoreError, match=r"cannot write .*target"):
        write_atomically(tmp_path / "target", b"x")
    assert os.listdir(tmp_path) == ["target"]


def test_a_linked_file_goes_its_own_way_and_is_copied_where_it_cannot_be_linked(tmp_path):
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    source.write_text("old")
    link_file(source, target)
    assert source.samefile(target)
    write_atomically(source, b"new")
    assert target.read_text() == "old"
    with pytest.raises(CorruptFileError, match="missing is missing"):
        link_file(tmp_path / "missing", tmp_path / "other")
    with pytest.raises(StoreError, match=r"cannot write .*target"):
        link_file(source, target / "below")
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        link_file(source, Path(folder) / "copy")
        assert (Path(folder) / "copy").read_text() == "new"
