"""The loss of a finished model on the rows that its run holds out."""

from mortal_steps.compute.local import call_once
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.driver import specs_of
from mortal_steps.runs.run import Run
from mortal_steps.types import Evaluation


def loss_on_held_out(run: Run) -> dict[str, float]:
    """Return TRL's metrics of the held-out rows after the last step of a complete run, computed
    once: the run itself may have done it. An actor computes them in a process of its own. Raises
    `ConfigError` for a run that holds out no rows."""
    run_id, steps = run.info.run_id, run.info.num_steps
    if not run.info.num_eval_problems:
        raise ConfigError(
            f"run {run_id} has no held-out rows to evaluate; train with eval_dataset, or with "
            "data.eval_samples"
        )
    judged: Evaluation = call_once(specs_of(run)["actor"], "evaluate", step=steps)
    return dict(judged.metrics)
