"""The automations that bring a run back. `prefect flow-run retry` and the deployment `resume`:
test_schedule.py; a run that is brought back, until its end: `make scenarios`."""

import os
from pathlib import Path

from mortal.server.files import VARIABLE
from tests.support.database import writing_to
from tests.support.deployments import tiny_config
from tests.support.recovery import ATTEMPTS, SILENCE_S, automations, mortal

__all__ = ["automations", "mortal"]


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
                states = prefect.wait_for(run, "Recovering", within_s=9)
                assert states == ["Scheduled", "Pending", "Running", "Crashed", "Recovering"]
            assert prefect.states(worn_out)[-2:] == ["Running", "Crashed"]
    finally:
        for run in runs:
            prefect.http.delete(f"/flow_runs/{run}")
