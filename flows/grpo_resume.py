"""Continue a run by its id, as a flow: what `mortal resume` does, for deployments."""

from pathlib import Path
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from mortal_flows.deployed import is_deployed, wait_for_driver
from mortal_flows.grpo_train import NAME, train
from mortal_flows.project_folder import enter_project_folder
from mortal_flows.settings import FLOW_RUN, RunId, flow_run_of
from mortal_flows.terminal import stand_alone
from mortal_steps.errors import MortalError
from mortal_steps.orchestration.open_run import resume_config
from mortal_steps.runs.run import find_run

RUNS_DIR = "runs"


def flow_run_name() -> str:
    """Such as `grpo/<run_id>`, which also stands for a run that is not here."""
    enter_project_folder()
    run_id = flow_run.parameters["run_id"].strip()
    runs_dir = flow_run.parameters.get("runs_dir", RUNS_DIR)
    try:
        begun = find_run(Path(runs_dir), run_id).config
    except MortalError:
        return f"{FLOW_RUN}{run_id}"
    return flow_run_of(begun.algorithm.type, run_id)


@flow(name=NAME, flow_run_name=flow_run_name, persist_result=False)
async def grpo_resume(
    run_id: RunId,
    overrides: list[str] | None = None,
    runs_dir: str = RUNS_DIR,
    volume: str | None = None,
) -> State[Any]:
    """Continue a run at its last step, with its own configuration.

    What it has generated already is reused, and it ends with the same bits as a run that was never
    interrupted. A run that is complete stays as it is.

    Ends as `grpo_train` does. Raises `RunNotFoundError`, which names the runs that there are, for
    an id that none of them has.

    Args:
        run_id: Id of the run, as `mortal runs` lists it: the name of its flow runs, after the `/`.
        overrides: Settings to change for this time, each as `section.key=value`, such as
            `compute.modal.max_cost=30`. What would change the run's numbers is refused.
        runs_dir: Folder that holds all runs. A relative path starts in the project's folder.
        volume: Modal Volume that holds the run, such as `mortal-runs`, if it is not on this
            machine.
    """
    stand_alone()
    enter_project_folder()
    if is_deployed() and (elsewhere := await wait_for_driver(Path(runs_dir), run_id)) is not None:
        return elsewhere
    return await train(resume_config(Path(runs_dir), run_id, overrides or (), volume=volume))
