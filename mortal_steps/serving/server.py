"""Runs an engine's server as a process. It ends with this process, in whatever way that ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx

from mortal_steps.errors import ConfigError, EngineError
from mortal_steps.serving.commands import Endpoint, ServerCommand, url_of
from mortal_steps.system.child import Child

LOOK_EVERY_S = 0.1
ENDS_WITHIN_S = 10.0
"""Seconds that a server may take to end, requests in progress included."""
LAST_LINES = 8
"""How many lines of its output are shown if it does not start."""


def free_port(endpoint: Endpoint) -> Endpoint:
    """The endpoint, after checking that its port is free; port 0 is replaced by any free port.

    Raises `ConfigError` if the port is taken, or if the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((endpoint.host, endpoint.port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {endpoint.host}:{endpoint.port}: {error.strerror or error}; "
                "choose another --port, or --port 0 for a free one"
            ) from error
        return replace(endpoint, port=probe.getsockname()[1])


@contextlib.contextmanager
def running(command: ServerCommand, endpoint: Endpoint, log: Path) -> Iterator[Child]:
    """Run the server during the block, which is entered once the server answers.

    Raises `EngineError` with the end of the server's output if it does not start.
    """
    with log.open("wb") as output:
        process = Child(
            command.arguments,
            env={**os.environ, **command.environment},
            cwd=log.parent,
            output=output,
        )
    try:
        _wait_until_it_answers(process, command, endpoint, log)
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)
        process.kill_all()


def wait_for_end(process: Child, command: ServerCommand, log: Path) -> None:
    """Wait until the server ends. Raises `EngineError` then, with the end of its output."""
    process.wait()
    raise _ended(process, command, log)


def _wait_until_it_answers(
    process: Child, command: ServerCommand, endpoint: Endpoint, log: Path
) -> None:
    health = url_of(endpoint).removesuffix("/v1") + "/health"
    with httpx.Client(trust_env=False, timeout=2.0) as client:
        while process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if client.get(health).status_code == httpx.codes.OK:
                    return
            time.sleep(LOOK_EVERY_S)
    raise _ended(process, command, log)


def _ended(process: Child, command: ServerCommand, log: Path) -> EngineError:
    output = log.read_text(errors="replace")
    remedy = next((do for word, do in command.remedies.items() if word in output), "")
    lines = [line for line in output.splitlines() if line.strip()][-LAST_LINES:]
    told = "\n".join(f"    {line}" for line in lines)
    return EngineError(
        f"the server of {command.engine} ended with code {process.returncode}; its last lines:\n"
        f"{told}" + (f"\n{remedy}" if remedy else "")
    )
