"""A flow run that is started while another process drives its run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.exceptions import Abort
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_UI_URL, temporary_settings

from mortal_flows import deployed
from mortal_steps.errors import StoreError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types.identity import RunInfo
from tests.support.run_info import run_info

DRIVER = """
import sys, time
from pathlib import Path
from mortal_steps.runs.lease import acquire
from mortal_steps.store import RunStore
acquire(RunStore(Path(sys.argv[1])))
print("drives", flush=True)
time.sleep(60)
"""
OURS = "00000000-0000-0000-0000-000000000001"
THEIRS = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Of a run that another process drives for the flow run `OURS`."""
    monkeypatch.setattr(deployed, "PATIENCE_S", 0.1)
    monkeypatch.setattr(deployed, "LOOK_EVERY_S", 0.02)
    store = RunStore(tmp_path / "run")
    store.write_record(IDENTITY_FILE, run_info(tmp_path), RunInfo)
    run = Run(store, RunConfig(), run_info(tmp_path))
    run.update(status="running", ui_url=f"http://ui/runs/flow-run/{OURS}")
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(store.root)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout.readline() == "drives\n"
    with disable_run_logger(), temporary_settings({PREFECT_UI_URL: "http://ui"}):
        yield RunConfig(run_id="run", runs_dir=str(tmp_path))
    driver.kill()
    driver.wait()
    driver.stdout.close()


async def test_a_flow_run_is_left_to_the_process_that_drives_it(config, monkeypatch):
    monkeypatch.setitem(os.environ, "PREFECT__RUNTIME__FLOW_RUN__ID", OURS)
    with pytest.raises(Abort):
        await deployed.wait_for_driver(Path(config.runs_dir), config.run_id)


async def test_another_flow_run_is_skipped(config, monkeypatch):
    """`mortal resume` has been faster."""
    monkeypatch.setitem(os.environ, "PREFECT__RUNTIME__FLOW_RUN__ID", THEIRS)
    state = await deployed.wait_for_driver(Path(config.runs_dir), config.run_id)
    assert state.is_cancelled()
    assert "run run is in use by another process" in state.message
    with pytest.raises(StoreError, match="run run is in use by process"):
        find_run(Path(config.runs_dir), "run").acquire()
