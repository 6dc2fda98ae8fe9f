"""The disk below `MORTAL_STATE_DIR`, which has the Prefect server's files, is full."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.disk import mounted
from tests.support.project import write_project


@pytest.fixture
def disk(tmp_path):
    try:
        with mounted(tmp_path / "state", megabytes=24) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_full_state_folder_costs_a_run_nothing_but_its_history(tmp_path, disk, monkeypatch):
    """The command says so in a line, and ends soon."""
    write_project(tmp_path)
    monkeypatch.setenv("MORTAL_STATE_DIR", str(disk.folder))
    mortal = Mortal(tmp_path, "")
    training = mortal.start("train", "tiny.toml", "--run-id", "full")
    wait_for_step(mortal, "full", 2)
    with ThreadPoolExecutor() as beside:
        reading = beside.submit(training.communicate, timeout=PATIENCE_S)
        disk.stay_full(lambda: not reading.done())
    said, _ = reading.result()
    assert training.returncode == 1
    assert find_run(tmp_path / "runs", "full").is_complete()
    assert "Traceback" not in said
    last = " ".join(said[said.rindex("error: ") :].split())
    assert "run full has completed: `mortal show full`" in last
    assert f"The disk that holds {disk.folder}/prefect is full (" in last
    assert "set MORTAL_STATE_DIR to a folder on another disk" in last
