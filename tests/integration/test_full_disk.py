"""A full disk stops the run with a message; nothing half-written counts, and it goes on later."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mortal.server.files import out_of_room
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import StoreError
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.logs import FLOW_LOG, METRICS, RunLogs, flow_log
from mortal_steps.store import RunStore
from tests.support.savers import SAVERS, SIZE, commit
from tests.support.workers import TESTS_IMPORTABLE

FILES = 64


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 256 KiB and 64 files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},nr_inodes={FILES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    yield folder
    # Lazily: a process that another test forks meanwhile may hold a file open for a moment.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_server_whose_disk_is_full_is_told_apart_from_one_that_is_away(tiny_disk):
    told = out_of_room(tiny_disk)
    assert f"The disk that holds {tiny_disk} is full (262,144 bytes are free)" in told


@pytest.mark.parametrize("save", SAVERS)
def test_a_folder_that_does_not_fit_leaves_nothing(tiny_disk, save):
    store = RunStore(tiny_disk / "run")
    with pytest.raises(
        StoreError, match=r"cannot write .*weights/v1.* bytes are free .*mortal resume"
    ):
        commit(store, save)
    assert os.listdir(store.path("weights")) == []


def test_records_and_logs_stay_as_they_were(tiny_disk):
    store = RunStore(tiny_disk)
    ref = store.write_record("run.json", "small", str)
    logs = RunLogs(tiny_disk)
    logs.append(METRICS, {"step": 1})
    marks = logs.marks()
    with pytest.raises(StoreError, match=r"cannot write .*run\.json: the disk is full"):
        store.write_record("run.json", "x" * 2 * SIZE, str)
    with pytest.raises(StoreError, match=r"cannot write .*metrics\.jsonl: the disk is full"):
        logs.append(METRICS, *({"step": step} for step in range(SIZE // 4)))
    assert store.read_record(ref, str) == "small"
    assert sorted(os.listdir(tiny_disk)) == ["metrics.jsonl", "run.json"]
    assert RunLogs(tiny_disk).marks() == logs.marks() == marks
    logs.append(METRICS, {"step": 2})
    assert logs.read(METRICS) == [{"step": 1}, {"step": 2}]


def test_what_a_flow_logs_onto_a_full_disk_is_lost_and_ends_nothing(tiny_disk):
    with flow_log(tiny_disk):
        logging.getLogger("mortal_steps").warning("x" * 2 * SIZE)
    assert (tiny_disk / FLOW_LOG).stat().st_size <= SIZE


async def test_no_room_for_a_log_or_a_lock_is_named(tiny_disk):
    spec = WorkerSpec(factory="tests.support.workers:Counter", kwargs={}, env=TESTS_IMPORTABLE)
    compute = LocalCompute({"reward": spec}, working_dir=Path.cwd(), log_dir=tiny_disk / "logs")
    for number in range(FILES - 1):
        (tiny_disk / str(number)).touch()
    key = "reward/0/0"
    with pytest.raises(StoreError, match=r"cannot write .*logs/reward-0\.log: the disk is full"):
        await compute.call("reward", "pid", key=key)
    with pytest.raises(StoreError, match=r"cannot write .*run/lock: the disk is full"):
        acquire(RunStore(tiny_disk / "run"))
    for number in range(4):
        (tiny_disk / str(number)).unlink()
    assert await compute.call("reward", "pid", key=key) != os.getpid()
    await compute.close()


UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from mortal_steps.errors import StoreError
from mortal_steps.store import RunStore
from tests.support.savers import SAVERS, SIZE, commit
resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, SIZE))
for save in SAVERS:
    try:
        commit(RunStore(Path(sys.argv[1])), save)
    except StoreError as error:
        print(error)
"""


def test_a_limit_on_the_size_of_files_reads_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.count("a limit is reached") == len(SAVERS), done.stderr
    assert os.listdir(tmp_path / "weights") == []
