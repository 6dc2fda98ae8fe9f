"""A run without Prefect, to be killed.

python -m tests.support.modal.bare_run FOLDER RUN_ID [SETTING...]
"""

import asyncio
import logging
import os
import sys
from pathlib import Path

from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from tests.support import bare
from tests.support.modal.project import project


async def drive(run):
    """To its end, or to the error that ends it."""
    async with driver.open_session(run) as session:
        await bare.train(session)


def main():
    """Go on with the run of the project that lies in FOLDER."""
    logging.basicConfig(level=logging.INFO)
    folder, run_id, *overrides = sys.argv[1:]
    config = project(Path(folder), run_id, *overrides)
    os.chdir(folder)
    asyncio.run(drive(open_run(config)))


if __name__ == "__main__":
    main()
