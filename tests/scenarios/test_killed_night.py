"""A night whose process is killed, and Prefect's Retry."""

import signal

from tests.support.command import Mortal, end_driver, wait_for_step
from tests.support.deployments import tiny_config
from tests.support.nights import deployed, let_it_be_night, the_run
from tests.support.project import write_project
from tests.support.undisturbed import assert_same, undisturbed


def test_a_night_that_is_killed_and_retried_ends_with_the_bits_of_the_bare_loop(
    prefect, server, tmp_path
):
    write_project(tmp_path)
    mortal = Mortal(tmp_path, server.api_url)
    settings = tiny_config(tmp_path, "", max_steps=6)
    del settings["run_id"], settings["evaluation"]
    night = deployed(prefect, "killed-night", settings)[0]["id"]
    with prefect.worker():
        let_it_be_night(prefect, night)
        run_id = the_run(mortal)
        wait_for_step(mortal, run_id, 2)
        end_driver(mortal, run_id, signal.SIGKILL)
        prefect.wait_for(night, "Crashed")
        prefect.wait_for_worker(night)
        prefect("flow-run", "retry", night)
        states = prefect.wait_for(night, "Completed")
    told = [state for state in states if state in ("Running", "Crashed", "Completed")]
    assert told == ["Running", "Crashed", "Running", "Completed"]
    assert_same(tmp_path, run_id, undisturbed(tmp_path, settings))
    states = {run["state_type"] for run in mortal.ended_runs_of_flow(run_id)}
    assert "CRASHED" in states, "the segment that was killed"
    assert states <= {"COMPLETED", "CRASHED"}, "nothing stays Running"
