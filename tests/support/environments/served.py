"""Servers of OpenEnv with its real package, in an interpreter that has it."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

ECHO = """
import pathlib, subprocess, sys, tempfile, uvicorn
with tempfile.TemporaryDirectory() as folder:
    command = [str(pathlib.Path(sys.executable).with_name("openenv")), "init", "echo_env"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    sys.path.insert(0, folder)
    from openenv.core.env_server.http_server import create_app
    from echo_env.models import EchoAction, EchoObservation
    from echo_env.server.echo_env_environment import EchoEnvironment
app = create_app(EchoEnvironment, EchoAction, EchoObservation, max_concurrent_envs=64)
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""
"""The environment that `openenv init` writes."""
STARTS_S = 300.0


@contextlib.contextmanager
def served(script: str, python: str) -> Iterator[str]:
    """Run Python that serves an environment at the port that is its first argument; yield its
    address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([python, "-c", script, str(port)], stdout=sys.stderr)
    try:
        deadline = time.monotonic() + STARTS_S
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
