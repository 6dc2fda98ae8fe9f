"""The folder that a deployment's runs belong to: where relative paths and a user's modules begin.

Prefect's process worker puts the folder in which a flow run starts at the head of `PYTHONPATH`. In
the project's, a `random.py` or `datasets.py` of the user's would hide what Prefect itself imports.
So a flow run starts in the empty folder that the worker makes for it, and the flow enters the
project's once everything is imported.
"""

import os
import socket
from pathlib import Path

from mortal_steps.errors import ConfigError

VARIABLE = "MORTAL_PROJECT_FOLDER"
"""Tells the flow's process of the folder."""


def use_project_folder(directory: str) -> None:
    """Let the flow run in `directory`, a pull step of a deployment, whose environment Prefect
    passes on to the flow's process. Raises `ConfigError` unless the folder is there."""
    folder = Path(directory)
    if not folder.is_absolute() or not os.path.isdir(folder) or not os.access(folder, os.X_OK):
        raise ConfigError(
            f"the pull step use_project_folder has directory = {directory!r}, which is no absolute "
            f"path of a folder that this worker can enter, as user {os.getuid()} on "
            f"{socket.gethostname()}; run `prefect deploy` in the project's folder, where the "
            "worker can see it, or start the worker as a user and on a machine that has it"
        )
    os.environ[VARIABLE] = directory


def enter_project_folder() -> None:
    """Enter the folder that a pull step has named; without one, `mortal train` and other
    deployments start in the right folder."""
    folder = os.environ.pop(VARIABLE, None)  # not for the processes that this one starts
    if folder is not None:
        os.chdir(folder)
