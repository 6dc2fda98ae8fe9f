"""`mortal schedule` at a terminal that can go away."""

import contextlib
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import time
from termios import TIOCSCTTY

import httpx

from mortal.server.files import DATABASE
from tests.support.command import ENDED
from tests.support.deployments import PATIENCE_S
from tests.support.prefect_database import put_database


class Schedule:
    """The command with a file of a run or of a recipe, whose deployment is FLOW/NAME."""

    def __init__(self, folder, file, deployment, settings=(), api_url=None):
        """`api_url`: of a server that is there; without one it starts its own."""
        self.folder = folder
        self.api_url = api_url
        self.state = folder / "state"
        self.deployment = deployment
        self.said = b""
        self.terminal, theirs = os.openpty()
        settings = [("--set", each) for each in settings]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        if api_url:
            environment["PREFECT_API_URL"] = api_url
        else:
            put_database(self.state / "prefect" / DATABASE)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mortal", "schedule", file, *sum(settings, ())],
            cwd=folder,
            env={**environment, "MORTAL_STATE_DIR": str(self.state), "OMP_NUM_THREADS": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, TIOCSCTTY, 0),
        )
        os.close(theirs)

    def read(self):
        """The next of what it prints; nothing once nobody has the terminal open."""
        with contextlib.suppress(OSError):
            got = os.read(self.terminal, 10_000)
            self.said += got
            return got
        return b""

    def read_until(self, text):
        while text not in self.said:
            assert self.read(), self.said.decode()

    def server(self):
        return json.loads((self.state / "prefect/server.json").read_text())

    def request(self):
        """Request a flow run of the deployment; its id."""
        self.read_until(f"serving {self.deployment}".encode())
        api_url = self.api_url or self.server()["api_url"]
        with httpx.Client(base_url=api_url, trust_env=False, timeout=60) as http:
            deployment = http.get(f"/deployments/name/{self.deployment}").json()["id"]
            wanted = {"state": {"type": "SCHEDULED"}}
            made = http.post(f"/deployments/{deployment}/create_flow_run", json=wanted).json()
        return made["id"]

    def ended_as(self, flow_run):
        """The state of the flow run of this name in the database of its own server, which has
        ended, or as the other one tells it."""
        deadline = time.monotonic() + PATIENCE_S
        if self.api_url:
            wanted = {"flow_runs": {"name": {"any_": [flow_run]}}}
            while time.monotonic() < deadline:
                told = httpx.post(f"{self.api_url}/flow_runs/filter", json=wanted, timeout=60)
                if told.json()[0]["state_type"] in ENDED:
                    break
                time.sleep(0.2)
            return told.json()[0]["state_name"]
        while (self.state / "prefect/server.json").exists():
            assert time.monotonic() < deadline, "the server goes on"
            time.sleep(0.2)
        with contextlib.closing(sqlite3.connect(self.state / "prefect/prefect.db")) as database:
            wanted = "select state_name from flow_run where name = ?"
            ((state,),) = database.execute(wanted, (flow_run,)).fetchall()
        return state

    def hang_up(self):
        """Close the terminal, once: its number may be that of something else by then."""
        terminal, self.terminal = self.terminal, None
        if terminal is not None:
            os.close(terminal)

    def end(self):
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait()
        self.hang_up()
