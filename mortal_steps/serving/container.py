"""vLLM's server in a container beside the Volume that holds the runs."""

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
    """Start it and return at once: whoever called waits for the port.

    The model's files are copied from the Volume, which has no links, and checked against their
    digests. Raises what `prepare` does: a checkpoint without published weights cannot be exported
    here, where no trainer is.
    """
    run = find_run(runs_dir, run_id)
    folder = Path(tempfile.mkdtemp(prefix="mortal-serving-"))  # gone with the container
    endpoint = Endpoint(host="0.0.0.0", port=port)
    wanted = Wanted(step=step, engine="vllm", python=sys.executable)
    served, command = prepare(run, wanted, endpoint, folder, logger.info)
    logger.info("starting vLLM's server with %s, step %d", run_id, served.step)
    return subprocess.Popen(command.arguments, env={**os.environ, **command.environment})
