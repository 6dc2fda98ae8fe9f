"""The automations that bring a run back. `prefect flow-run retry` and the deployment `resume`:
test_schedule.py; a run that is brought back, until its end: `make scenarios`."""

import os
from pathlib import Path

from mortal.server.database import VARIABLE
from mortal.server.flow_runs import unfinished
from tests.support.database import writing_to
from tests.support.deployments import tiny_config
from tests.support.recovery import ATTEMPTS, SILENCE_S, automations, mortal

__all__ = ["automations", "mortal"]


def test_the_automations_watch_every_deployment_that_trains(automations):
    watched, silence = automations.partition(f" after {SILENCE_S} s")[:2]
    assert silence
    assert all(f"grpo-train/{name}" in watched for name in ("local", "nightly", "resume"))


def test_a_run_that_comes_back_while_the_next_one_goes_is_not_given_up(
    prefect, mortal, server, automations
):
    """One run at a time, and a new one is cancelled: so says `nightly`."""
    config = tiny_config(mortal.folder, "nobody-runs-this-either")
    before, next_one, another = (prefect.run_deployment(config, "nightly") for _ in range(3))
    try:
        for state in ("PENDING", "RUNNING", "CRASHED"):
            prefect.set_state(before, state)
        prefect.wait_for(before, "Recovering")
        prefect.set_state(next_one, "PENDING")
        for refused in (before, another):
            for state in ("SCHEDULED", "PENDING"):
                wanted = {"state": {"type": state}}
                prefect.http.post(f"/flow_runs/{refused}/set_state", json=wanted)
        assert "Cancelled" in prefect.wait_for(before, "HeldUp")
        assert "HeldUp" in {state for _, state, *_ in unfinished(server)}
        assert prefect.states(another)[-1] == "Cancelled", "it has never begun"
    finally:
        for run in (before, next_one, another):
            prefect.http.delete(f"/flow_runs/{run}")


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
