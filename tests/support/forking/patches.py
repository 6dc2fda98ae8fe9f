"""Where this package starts interpreters, a holder forks processes."""

import dataclasses
import functools
import json
import sys
import tempfile
import threading

import pytest

from mortal_steps.compute import forkserver, local_container
from mortal_steps.environments.processes import host as environment_host
from mortal_steps.errors import ModelError
from mortal_steps.harnesses import running
from mortal_steps.hosts import process as host_process
from mortal_steps.policy.model_files import exporting
from mortal_steps.rewards import host as reward_host
from mortal_steps.serving import whole


def fork_by(holder, light, patch):
    """Have workers, and hosts of rewards and harnesses, forked by the holder, and hosts of
    environments by the light one."""
    for place in (forkserver, local_container):
        patch(place, "Child", holder.child)
    for place in (reward_host, running):
        patch(place, "HostProcess", functools.partial(_HostByHolder, holder))
    fork_environments_by(light, patch)
    patch(whole, "export_in_process", functools.partial(_export, holder))


def fork_environments_by(light, patch):
    """Have hosts of environments forked by the light holder."""
    patch(environment_host, "HostProcess", functools.partial(_HostByHolder, light))


def _export(holder, checkpoint, folder, export):
    """In place of `export_in_process`."""
    arguments = [str(checkpoint), str(folder), json.dumps(dataclasses.asdict(export))]
    command = [sys.executable, "-P", "-m", exporting.__name__, *arguments]
    with tempfile.TemporaryFile() as output:
        if holder.child(command, pass_fds=[], output=output).wait():
            output.seek(0)
            raise ModelError(f"{checkpoint} cannot be exported:\n{output.read().decode()}")


class _HostByHolder(host_process.HostProcess):
    def __init__(self, holder, *arguments, **options):
        super().__init__(*arguments, **options)
        self._holder = holder

    def _launch(self):
        with _launching, pytest.MonkeyPatch.context() as patch:
            patch.setattr(host_process, "Child", self._holder.child)
            super()._launch()


_launching = threading.Lock()
