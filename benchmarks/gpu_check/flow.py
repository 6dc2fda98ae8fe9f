"""A run without Prefect, its workers in processes of their own; to be killed and started again.

python -m benchmarks.gpu_check.flow CONFIG RUN_ID [SETTING...]
"""

import asyncio
import importlib.util
import logging
import os
import sys
import types
from pathlib import Path

from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.runs.run import Run


def without_prefect() -> None:
    """Stand in for Prefect where it is missing: the loop asks it for one exception alone."""
    if importlib.util.find_spec("prefect") is not None:
        return
    exceptions = types.ModuleType("prefect.exceptions")
    exceptions.TerminationSignal = type("TerminationSignal", (BaseException,), {})  # type: ignore[attr-defined]
    sys.modules |= {"prefect": types.ModuleType("prefect"), "prefect.exceptions": exceptions}


async def drive(run: Run) -> None:
    """To its end, or to the error that ends it."""
    from tests.support import bare  # after `without_prefect`

    async with driver.open_session(run) as session:
        await bare.train(session)


def main() -> None:
    """Begin the run of the project in CONFIG's folder, or go on with it."""
    logging.basicConfig(level=logging.INFO)
    without_prefect()
    name, run_id, *overrides = sys.argv[1:]
    folder = Path(name).parent
    os.chdir(folder)
    config = load_config(Path(name), overrides)
    config = config.model_copy(update={"run_id": run_id, "runs_dir": str(folder / "runs")})
    run = open_run(config)
    if not run.is_complete():
        asyncio.run(drive(run))


if __name__ == "__main__":
    main()
