"""Files in shared memory: read while they are there, never while they change, and never kept."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.errors import ConfigError, CorruptFileError
from mortal_steps.store import segments
from mortal_steps.store.segments import (
    SHARED_MEMORY,
    Segment,
    abandoned_segments,
    check_shared_memory,
    opened,
    prefix_of,
    remove_segments,
)
from mortal_steps.types import SegmentRef

PAYLOAD = b"weights!" * 1000


@pytest.fixture
def run(tmp_path):
    yield tmp_path
    remove_segments(tmp_path)


def filled(run, payload=PAYLOAD, files=None):
    """A segment and where its content lies."""
    segment = Segment(run, len(payload))
    assert segment.try_to_lock()
    return segment, fill(segment, payload, files or {"probe.json": b"{}"})


def fill(segment, payload=PAYLOAD, files=None):
    segment.payload(len(payload))[:] = payload
    return segment.seal(files or {}, ("model.safetensors", len(payload)))


def content_of(reference):
    with opened(reference) as shared:
        return shared and (dict(shared.files), shared.payload_name, bytes(shared.payload))


def names(run):
    return sorted(path.name for path in SHARED_MEMORY.glob(f"{prefix_of(run)}*"))


def test_what_was_put_in_is_read(run):
    _, reference = filled(run)
    assert content_of(reference) == ({"probe.json": b"{}"}, "model.safetensors", PAYLOAD)


def test_a_later_version_is_not_taken_for_the_one_before(run):
    segment, first = filled(run)
    assert segment.try_to_lock()
    second = fill(segment, b"other")
    assert content_of(first) is None
    assert content_of(second)[2] == b"other"


def test_nothing_is_written_while_somebody_reads(run):
    segment, reference = filled(run)
    with opened(reference) as shared:
        assert not segment.try_to_lock()
        assert bytes(shared.payload) == PAYLOAD
    assert segment.try_to_lock()


def test_a_reader_waits_for_the_writer(run):
    segment, first = filled(run)
    segment.try_to_lock()
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(content_of, first)
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.1)
        fill(segment)
        assert reading.result(timeout=60) is None


def test_whoever_writes_to_what_it_read_changes_a_copy(run):
    _, reference = filled(run)
    with opened(reference) as shared:
        shared.payload[:4] = b"mine"
    assert content_of(reference)[2] == PAYLOAD


def killed_writer(run, *, while_writing):
    """The reference of a segment of which nothing is open any more, as after a kill."""
    segment, reference = filled(run)
    if while_writing:
        segment.try_to_lock()
    segment._memory.close()
    os.close(segment._file)
    return reference


def test_what_was_announced_outlives_its_writer(run):
    reference = killed_writer(run, while_writing=False)
    assert content_of(reference)[2] == PAYLOAD


def test_half_of_a_version_is_none(run):
    assert content_of(killed_writer(run, while_writing=True)) is None


def test_leftovers_of_a_run_are_removed_and_no_others(run, tmp_path_factory):
    other = tmp_path_factory.mktemp("other-run")
    segment, _ = filled(run)
    left = killed_writer(run, while_writing=False)
    filled(other)
    try:
        remove_segments(run, but=[segment.name])
        assert names(run) == [segment.name]
        assert content_of(left) is None
        assert len(names(other)) == 1
    finally:
        remove_segments(other)


def test_a_segment_is_abandoned_an_hour_after_its_writer(run):
    segment, _ = filled(run)
    left = SHARED_MEMORY / killed_writer(run, while_writing=False).name
    assert not {left, SHARED_MEMORY / segment.name} & set(abandoned_segments())
    long_ago = time.time() - 2 * segments.ABANDONED_S
    os.utime(left, (long_ago, long_ago))
    os.utime(SHARED_MEMORY / segment.name, (long_ago, long_ago))
    found = abandoned_segments()
    assert left in found
    assert SHARED_MEMORY / segment.name not in found


def test_a_removed_segment_is_gone(run):
    segment, reference = filled(run)
    segment.remove()
    assert content_of(reference) is None
    assert names(run) == []


@pytest.mark.parametrize("name", ["../etc/passwd", "mortal-1-1-x/../../a", "other"])
def test_a_name_that_is_no_segments_is_refused(name):
    with pytest.raises(CorruptFileError, match="no name of a segment"):
        content_of(SegmentRef(name=name, stamp="0"))


@pytest.mark.parametrize("damage", [b"#", b"\xff", b'{"Stamp"'])
def test_a_damaged_head_is_refused_in_a_few_words_that_tell_what_helps(run, damage):
    segment, reference = filled(run, files={"probe.json": bytes(30_000)})
    with (SHARED_MEMORY / segment.name).open("r+b") as file:
        file.seek(16)
        file.write(damage)
    with pytest.raises(CorruptFileError, match="is damaged: its head") as refused:
        content_of(reference)
    assert "mortal resume" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_too_little_room_is_named_with_the_remedy(run):
    free = shutil.disk_usage(SHARED_MEMORY).free
    with pytest.raises(ConfigError, match=r"/dev/shm, which has .* free.*--shm-size.*'reload'"):
        Segment(run, free + 1)
    with pytest.raises(ConfigError, match=f"needs {free * 2:,} bytes"):
        check_shared_memory(free * 2)
    assert names(run) == []


def test_a_machine_without_shared_memory_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "SHARED_MEMORY", tmp_path / "shm")
    with pytest.raises(ConfigError, match=r"shm is not there or not writable.*'reload'"):
        check_shared_memory()
