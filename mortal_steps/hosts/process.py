"""A host as its owner sees it: a process that is watched, killed and replaced, and that can be
forked. What it starts ends with it (`Child`)."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mortal_steps
from mortal_steps.errors import MortalError, WorkerLostError
from mortal_steps.hosts.base import EXIT_S, GRACE_S, Host, HostLostError
from mortal_steps.hosts.forked import ForkedHost
from mortal_steps.system.child import Child
from mortal_steps.system.frames import Construct
from mortal_steps.system.processes import ending

PATH = "PYTHONPATH"
LOOPBACK = "127.0.0.1"

ORCHESTRATION = ("PREFECT_", "MODAL_")
"""Prefixes of variables that control the run: its server, and the account on which it runs."""

CREDENTIALS = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "HF_TOKEN",
        "HUGGINGFACE_HUB_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "TRACKIO_WRITE_TOKEN",
        "WANDB_API_KEY",
        "WANDB_IDENTITY_TOKEN_FILE",
    }
)
"""Of trackers, model hubs and clouds. The key of a service that users' code asks is its own
business."""


class HostProcess(Host):
    """Calls methods of a handler in a process of its own, which is started at the first need and
    again after it was lost.

    `handler` names the class, as `module:Class`; its `options` are pickled. What its methods return
    is JSON, and checked. Of the environment, what drives the run and its credentials are left out,
    but for the names in `passed_on`; `variables` are set. `before_start` is called before each
    start. `python` is its interpreter, if it is another: it sees this package, and nothing else
    that is installed here. What the host prints goes where the output of this process goes. For one
    thread at a time, but for `fork`.
    """

    def __init__(
        self,
        handler: str,
        options: Mapping[str, Any],
        *,
        passed_on: Collection[str] = (),
        before_start: Callable[[], None] | None = None,
        variables: Mapping[str, str] | None = None,
        python: str | None = None,
        start_timeout_s: float = 600.0,
    ) -> None:
        super().__init__()
        self._construct = Construct(factory=handler, kwargs=options)
        self._passed_on = frozenset(passed_on)
        self._before_start = before_start
        self._variables = dict(variables or {})
        self._python = python
        self._start_timeout_s = start_timeout_s
        self._child: Child | None = None
        self._starting = threading.RLock()

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the process, unless it runs. Raises `WorkerLostError` without room for it, the
        `MortalError` of the handler's constructor or `before_start`, and `HostLostError`."""
        with self._starting:
            if self.is_running():
                return
            self.close()
            if self._before_start is not None:
                self._before_start()
            self._launch()
            try:
                limit_s = self._start_timeout_s
                order = replace(self._construct, late_at=time.monotonic() + limit_s)
                self._exchange(0, order, limit_s + GRACE_S, None)
            except HostLostError:
                raise
            except MortalError:
                self.close()
                raise

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        """See `Host.call`. A host that has ended by itself is not started again here: what it was
        given before is lost."""
        if self._child is None:
            self.start()
        return super().call(method, returns=returns, timeout_s=timeout_s, **payload)

    def fork(self) -> ForkedHost:
        """Fork the process and return the fork, whose handler is a copy of the one that the process
        has now; start the process, unless it runs, and once more if it ends meanwhile. Several
        threads may fork at a time.

        Raises `WorkerLostError` if the machine has no room for it, and what `start` does.
        """
        child, control = self._started()
        try:
            return ForkedHost(control, partial(_ending, child))
        except WorkerLostError:
            if child is self._child and self.is_running():
                raise
        child, control = self._started()
        return ForkedHost(control, partial(_ending, child))

    def _started(self) -> tuple[Child, socket.socket]:
        """Return the process, started if need be, and where it takes orders to fork."""
        with self._starting:
            self.start()
            assert self._child is not None
            return self._child, self._control

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill_all()
            self._connection.close()
            self._control.close()
            self._stacks.close()

    def _launch(self) -> None:
        with contextlib.ExitStack() as opened:
            try:
                ours, theirs = map(opened.enter_context, socket.socketpair())
                orders, taken = map(opened.enter_context, socket.socketpair())
                stacks = opened.enter_context(tempfile.TemporaryFile())
                passed = (theirs.fileno(), stacks.fileno(), taken.fileno())
                env = {**visible_environment(os.environ, self._passed_on), **self._variables}
                folder = "" if self._python is None else _folder_of_package()
                if folder:
                    opened.callback(shutil.rmtree, folder, ignore_errors=True)
                    env[PATH] = os.pathsep.join(filter(None, (folder, env.get(PATH))))
                python = self._python or sys.executable
                self._child = Child(
                    [python, "-P", "-m", "mortal_steps.hosts.inside", *map(str, passed)],
                    pass_fds=passed,
                    env=env,
                    scratch=folder,
                    continues=True,
                )
            except OSError as error:
                raise WorkerLostError(
                    f"a process for users' code could not be started: {error}; the machine may be "
                    "short of processes, descriptors, memory, or room in its temporary folder"
                ) from None
            theirs.close()
            taken.close()
            self._connection, self._control, self._stacks = ours, orders, stacks
            opened.pop_all()

    def _ending(self) -> str:
        assert self._child is not None
        return _ending(self._child)


def _folder_of_package() -> str:
    """Return a new folder with a link to this package alone, for another interpreter."""
    folder = tempfile.mkdtemp(prefix="mortal-package-")
    package = Path(mortal_steps.__file__).parent
    (Path(folder) / package.name).symlink_to(package, target_is_directory=True)
    return folder


def _ending(child: Child) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return ending(child.wait(EXIT_S))
    return "it closed its connection"


def visible_environment(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return the environment for users' code: without credentials but those `named`."""
    return {
        name: value
        for name, value in environment.items()
        if name in named or not (name in CREDENTIALS or name.startswith(ORCHESTRATION))
    }


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables by which HTTP clients reach this machine without a proxy."""
    return {
        name: ",".join(filter(None, (environment.get(name), LOOPBACK)))
        for name in ("NO_PROXY", "no_proxy")
    }
