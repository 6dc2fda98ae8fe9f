"""Volumes: what clients and containers see of each other's writes."""

import io
import os

import modal
import pytest
from modal.exception import ResourceExhaustedError

MIB = 1 << 20


@pytest.fixture(scope="module")
def volume(plane):
    return modal.Volume.from_name("sample-data")


def counter(name):
    """One that stays, so that a test does not meet another container by chance."""
    worker = modal.Cls.from_name("sample", "Counter").with_options(scaledown_window=600)
    return worker(name=name)


def read(volume, path):
    return b"".join(volume.read_file(path))


def test_a_write_is_seen_after_commit_and_reload(plane, volume):
    writer, reader = counter("writer"), counter("reader")
    assert reader.read.remote("seen", reload=True) is None
    writer.write.remote("seen", "first", commit=False)
    assert reader.read.remote("seen", reload=True) is None
    with pytest.raises(FileNotFoundError):
        read(volume, "seen")
    writer.write.remote("seen", "second", commit=True)
    assert reader.read.remote("seen", reload=False) is None  # stale until it reloads
    assert reader.read.remote("seen", reload=True) == "second"
    assert read(volume, "seen") == b"second"
    writer.write.remote("seen", "third", commit=True)
    assert reader.read.remote("seen", reload=True) == "third"


def test_a_client_puts_lists_reads_and_removes(plane, volume):
    data = os.urandom(9 * MIB)  # more than a block
    with volume.batch_upload() as batch:
        batch.put_file(io.BytesIO(data), "folder/large")
        batch.put_file(io.BytesIO(b"text"), "folder/small")
    assert read(volume, "folder/large") == data
    listed = {entry.path: entry.size for entry in volume.listdir("folder")}
    assert listed == {"folder/large": len(data), "folder/small": 4}
    with pytest.raises(FileExistsError), volume.batch_upload() as batch:
        batch.put_file(io.BytesIO(b"other"), "folder/small")
    with volume.batch_upload(force=True) as batch:
        batch.put_file(io.BytesIO(b"other"), "folder/small")
    assert counter("client").read.remote("folder/small", reload=True) == "other"
    volume.remove_file("folder", recursive=True)
    assert not [entry for entry in volume.listdir("/", recursive=True) if "folder" in entry.path]


def test_a_full_volume_takes_nothing(plane, volume):
    writer = counter("writer")
    writer.write.remote("full", "before", commit=True)
    plane.fill_volume("sample-data")
    try:
        with pytest.raises(ResourceExhaustedError, match="full"):
            writer.write.remote("full", "after", commit=True)
        with (
            pytest.raises(ResourceExhaustedError, match="full"),
            volume.batch_upload(force=True) as batch,
        ):
            batch.put_file(io.BytesIO(b"after"), "full")
        assert read(volume, "full") == b"before"
    finally:
        plane.empty_volume("sample-data")
    writer.write.remote("full", "after", commit=True)
    assert read(volume, "full") == b"after"


def test_what_a_container_did_not_commit_is_committed_when_it_ends(plane, volume):
    writer = counter("ending")
    writer.write.remote("late", "text", commit=False)
    task = next(e["task"] for e in reversed(plane.events("input_started")))
    plane.preempt(task)
    plane.wait_for("container_ended", task=task)
    assert read(volume, "late") == b"text"


def test_what_a_killed_container_did_not_commit_is_lost(plane, volume):
    writer = counter("killed")
    writer.write.remote("lost", "text", commit=False)
    task = next(e["task"] for e in reversed(plane.events("input_started")))
    plane.kill(task)
    plane.wait_for("container_ended", task=task)
    assert counter("killed").read.remote("lost", reload=True) is None


def test_a_volume_with_open_files_is_not_reloaded(plane):
    writer = counter("writer")
    assert "open files" in writer.reload_beside_open_file.remote("open")
    assert "open files" in writer.reload_beside_a_child.remote("inherited")


def test_a_missing_volume_is_named(plane):
    with pytest.raises(modal.exception.NotFoundError, match="absent-data"):
        modal.Volume.from_name("absent-data").hydrate()
