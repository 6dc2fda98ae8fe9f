"""A deployment run that is killed with its worker, comes back by itself and is cancelled; another
one ends it. By `prefect flow-run retry`: tests/e2e/test_schedule.py."""

import signal
from types import SimpleNamespace

import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import assert_saved, end_driver, wait_for_step
from tests.support.damage import lose_the_last_step
from tests.support.deployments import tiny_config
from tests.support.recovery import ATTEMPTS, SILENCE_S, automations, mortal
from tests.support.undisturbed import assert_same, begun, undisturbed

STEPS = 12
__all__ = ["automations", "mortal"]


@pytest.fixture(scope="module")
def whole(mortal):
    return undisturbed(mortal.folder, tiny_config(mortal.folder, "whole", max_steps=STEPS))


def named(states, *names):
    """Those of the states that have one of these names, in order."""
    return [state for state in states if state in names]


@pytest.fixture(scope="module")
def lost(prefect, mortal, automations):
    """A flow run that loses its process and its worker at once, comes back by itself and is
    cancelled then; beside it one that dies whenever it starts. The states of both."""
    config = tiny_config(mortal.folder, "lost", max_steps=STEPS)
    config["checkpoints"]["save_steps"] = STEPS
    begun(mortal.folder, config, "lost")
    with prefect.worker() as worker:
        lost = prefect.run_deployment(config)
        wait_for_step(mortal, "lost", 3)
        worker.kill()
        end_driver(mortal, "lost", signal.SIGKILL)
    with prefect.worker():
        # Its command ends before Prefect starts, so Prefect never counts it as run. The worker that
        # was killed might have left it silent; silence is counted apart.
        dying = prefect.run_deployment(
            tiny_config(mortal.folder, "dying"), "nightly", command="sh -c 'kill -9 $$'"
        )
        wait_for_step(mortal, "lost", 6)
        prefect.cancel(lost)
        states = prefect.wait_for(lost, "Cancelled")
        dead = prefect.wait_for(dying, "Crashed")
    return SimpleNamespace(config=config, states=states, dead=dead)


def test_automations_bring_a_run_back(automations, lost):
    watched, silence = automations.partition(f" after {SILENCE_S} s")[:2]
    assert silence
    assert all(f"grpo-train/{name}" in watched for name in ("local", "nightly", "resume"))
    wanted = ("Running", "Crashed", "Recovering", "AwaitingRetry", "Cancelled")
    assert named(lost.states, *wanted) == [*wanted[:4], "Running", "Cancelled"]


def test_automations_give_up_what_dies_whenever_it_starts(lost):
    assert lost.dead.count("Pending") == ATTEMPTS
    assert lost.dead.count("AwaitingRetry") == ATTEMPTS - 1


def test_a_cancelled_run_is_saved(mortal, lost):
    assert_saved(find_run(mortal.folder / "runs", "lost"), 6)


def test_the_deployment_resume_goes_on_to_the_same_bits(prefect, mortal, lost, whole):
    again = lose_the_last_step(find_run(mortal.folder / "runs", "lost"))
    which = ("--param", "run_id=lost", "--param", f"runs_dir={mortal.folder}/runs")
    with prefect.worker():
        prefect("deployment", "run", "grpo-train/resume", *which, "--watch")
    assert_same(mortal.folder, "lost", whole)
    task_runs = mortal.ended_runs_of_flow("lost")
    replayed = {run["name"] for run in task_runs if "replayed" in run["tags"]}
    assert {f"generate/{again}/{shard}" for shard in (0, 2, 3)} <= replayed
    states = {run["state_type"] for run in task_runs}
    assert "CRASHED" in states, "the segment that was killed"
    assert states <= {"COMPLETED", "CRASHED", "CANCELLED", "FAILED"}, "nothing stays Running"


def test_a_night_that_waits_for_the_next_one_goes_on_to_its_end(
    prefect, mortal, automations, whole
):
    config = tiny_config(mortal.folder, "held", max_steps=STEPS)
    begun(mortal.folder, config, "held")
    longer = tiny_config(mortal.folder, "next", max_steps=50 * STEPS)
    with prefect.worker():
        held = prefect.run_deployment(config, "nightly")
        wait_for_step(mortal, "held", 3)
        end_driver(mortal, "held", signal.SIGKILL)
        prefect.wait_for(held, "Crashed", "Recovering")
        next_one = prefect.run_deployment(longer, "nightly")
        prefect.wait_for(held, "AwaitingConcurrencySlot")
        prefect.cancel(next_one)
        states = prefect.wait_for(held, "Completed", "Failed", "Crashed")
    wanted = ("Running", "Recovering", "AwaitingConcurrencySlot", "Completed")
    assert named(states, *wanted)[-2:] == ["Running", "Completed"]
    assert_same(mortal.folder, "held", whole)
