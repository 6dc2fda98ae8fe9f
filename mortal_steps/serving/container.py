"""Starts vLLM's server in a container on Modal that mounts the Volume with the runs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mortal_steps.runs.run import find_run
from mortal_steps.serving.commands import Endpoint
from mortal_steps.serving.preparing import Wanted, prepare

logger = logging.getLogger(__name__)

Process = subprocess.Popen[bytes]


def start_server(runs_dir: Path, run_id: str, step: int | None, port: int) -> Process:
    """Start the server and return at once. The caller waits until the port is open.

    The model's files are copied from the Volume, where links are not possible, and checked against
    their digests. Raises the errors of `prepare`: among others, a checkpoint without published
    weights cannot be exported here, because the container has no trainer.
    """
    run = find_run(runs_dir, run_id)
    folder = Path(tempfile.mkdtemp(prefix="mortal-serving-"))  # it disappears with the container
    endpoint = Endpoint(host="0.0.0.0", port=port)
    wanted = Wanted(step=step, engine="vllm", python=sys.executable)
    served, command = prepare(run, wanted, endpoint, folder, logger.info)
    logger.info("starting vLLM's server with %s, step %d", run_id, served.step)
    return subprocess.Popen(command.arguments, env={**os.environ, **command.environment})
