"""The automations that bring a run back. `prefect flow-run retry` and the deployment `resume`:
test_schedule.py; a run that is brought back, until its end: `make scenarios`."""

import os
import time
from datetime import datetime
from pathlib import Path

from mortal.server.files import VARIABLE
from mortal.server.ordering import WAIT
from tests.support.database import writing_to
from tests.support.deployments import PATIENCE_S, tiny_config
from tests.support.recovery import ATTEMPTS, SILENCE_S, automations, mortal

__all__ = ["automations", "mortal"]


def recovering(prefect, run):
    """The states of a flow run once it is to come back, each with its time."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        states = prefect.http.get("/flow_run_states/", params={"flow_run_id": run}).json()
        times = [(each["name"], datetime.fromisoformat(each["timestamp"])) for each in states]
        if "Recovering" in dict(times):
            return sorted(times, key=lambda state: state[1])
        time.sleep(0.1)
    raise AssertionError(f"flow run {run} is not to come back: {times}")


def test_the_automations_watch_every_deployment_that_trains(automations):
    watched, silence = automations.partition(f" after {SILENCE_S} s")[:2]
    assert silence
    assert all(f"grpo-train/{name}" in watched for name in ("local", "nightly", "resume"))


def test_a_busy_database_neither_loses_nor_doubles_a_crash(prefect, mortal, automations):
    """A transaction that reads before it writes fails there; Prefect then drops the event, or shows
    it again to automations that have seen it."""
    config = tiny_config(mortal.folder, "nobody-runs-this")
    runs = [prefect.run_deployment(config) for _ in range(6)]
    worn_out, *others = runs
    starts = {worn_out: ATTEMPTS}
    try:
        home = Path(os.environ["MORTAL_STATE_DIR"], "prefect")
        with writing_to(os.environ.get(VARIABLE), home):
            for run in runs:
                prefect.set_state(run, "PENDING")
                for _ in range(starts.get(run, 1)):
                    prefect.set_state(run, "RUNNING")
                prefect.set_state(run, "CRASHED")
            for run in others:
                times = recovering(prefect, run)
                names = [name for name, _ in times]
                assert names[:5] == ["Scheduled", "Pending", "Running", "Crashed", "Recovering"]
                assert names.count("Recovering") == 1
                assert times[4][1] - times[3][1] < WAIT, "no event was lost, to be found later"
            assert prefect.states(worn_out)[-2:] == ["Running", "Crashed"]
    finally:
        for run in runs:
            prefect.http.delete(f"/flow_runs/{run}")
