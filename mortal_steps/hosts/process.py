"""A host as its owner sees it: a process that is watched, killed and replaced.

Code of users may hang while it holds the interpreter (a regular expression that backtracks for
hours does), end its process, or be killed for its memory. So it runs in a process of its own, and
the clock that limits it runs in this one. What it starts ends with it (`Child`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from mortal_steps.errors import MortalError, WorkerLostError
from mortal_steps.hosts.answers import (
    LARGEST_ANSWER,
    NoAnswerError,
    decode_answer,
    received_error,
)
from mortal_steps.system.child import Child
from mortal_steps.system.frames import (
    Construct,
    FrameError,
    Request,
    receive_bytes,
    send_frame,
)
from mortal_steps.system.processes import ending

GRACE_S = 0.5
"""What a call may take beyond its time limit, so that the handler itself can end it at that."""
EXIT_S = 5.0
"""How long a host that closed its connection may take to be gone."""
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


class HostLostError(WorkerLostError):
    """The host gave no answer; it is gone by now, and the next `start` begins another.

    `why`: it took too long, it ended, or what it sent was no answer. `how` says so in words.
    `stack`: what faulthandler wrote of where in its code it was, as far as known.
    """

    def __init__(
        self, why: Literal["timeout", "ended", "spoilt"], how: str, stack: str = ""
    ) -> None:
        super().__init__(why, how, stack)
        self.why, self.how, self.stack = why, how, stack

    def __str__(self) -> str:
        return f"a process with users' code was lost: {self.how}\n{self.stack}".rstrip()


class HostProcess:
    """Calls methods of a handler in a process of its own, which is started at the first need and
    again after it was lost.

    `handler` names the class, as `module:Class`; its `options` are pickled. What its methods return
    is JSON, and checked. Of the environment, what drives the run and its credentials are left out,
    but for the names in `passed_on`. `before_start` is called before each start. What the host
    prints goes where the output of this process goes. For one thread at a time.
    """

    def __init__(
        self,
        handler: str,
        options: Mapping[str, Any],
        *,
        passed_on: Collection[str] = (),
        before_start: Callable[[], None] | None = None,
        start_timeout_s: float = 600.0,
    ) -> None:
        self._construct = Construct(factory=handler, kwargs=options)
        self._passed_on = frozenset(passed_on)
        self._before_start = before_start
        self._start_timeout_s = start_timeout_s
        self._child: Child | None = None
        self._numbers = itertools.count(1)

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the process, unless it runs.

        Raises `WorkerLostError` if the machine has no room for it, the `MortalError` that the
        handler's constructor raised, what `before_start` raises, and `HostLostError`.
        """
        if self.is_running():
            return
        self.close()
        if self._before_start is not None:
            self._before_start()
        self._launch()
        try:
            self._exchange(0, self._construct, self._start_timeout_s, None)
        except HostLostError:
            raise
        except MortalError:
            self.close()
            raise

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        """Return what the handler's method does, which must have the type `returns`.

        Raises the `MortalError` that the method raised, `WorkerError` for any other exception, and
        `HostLostError` without an answer within `timeout_s`. A host that has ended by itself is not
        started again here: what it was given before is lost.
        """
        if self._child is None:
            self.start()
        request = Request(
            number=next(self._numbers), method=method, payload=payload, timeout_s=timeout_s
        )
        return self._exchange(request.number, request, timeout_s + GRACE_S, returns)

    def close(self) -> None:
        """End the process and all that it started."""
        child, self._child = self._child, None
        if child is not None:
            child.kill_all()
            self._connection.close()
            self._stacks.close()

    def spoilt(self, what: str) -> HostLostError:
        """End the host, whose answer cannot be its handler's, and return the error that says so."""
        return self._lost("spoilt", f"wrote into the connection of its process: {what}")

    def _launch(self) -> None:
        with contextlib.ExitStack() as opened:
            try:
                ours, theirs = map(opened.enter_context, socket.socketpair())
                stacks = opened.enter_context(tempfile.TemporaryFile())
                passed = (theirs.fileno(), stacks.fileno())
                self._child = Child(
                    [sys.executable, "-P", "-m", "mortal_steps.hosts.inside", *map(str, passed)],
                    pass_fds=passed,
                    env=visible_environment(os.environ, self._passed_on),
                )
            except OSError as error:
                raise WorkerLostError(
                    f"a process for users' code could not be started: {error}; the machine may be "
                    "short of processes, descriptors, memory, or room in its temporary folder"
                ) from None
            theirs.close()
            self._connection, self._stacks = ours, stacks
            opened.pop_all()

    def _exchange(self, number: int, message: object, timeout_s: float, returns: Any) -> Any:
        assert self._child is not None
        deadline = time.monotonic() + timeout_s
        self._connection.settimeout(timeout_s)
        try:
            send_frame(self._connection, message)
            content = receive_bytes(self._connection, deadline=deadline, largest=LARGEST_ANSWER)
            answer = decode_answer(content, number, returns)
            error = received_error(answer.error) if answer.error is not None else None
        except (NoAnswerError, FrameError) as wrong:
            raise self.spoilt(str(wrong)) from None
        except TimeoutError:
            raise self._lost("timeout", f"no answer within {timeout_s:g} s") from None
        except (EOFError, ConnectionError):
            raise self._lost("ended", self._ending()) from None
        except BaseException:
            self.close()  # its answer to this would be taken for the answer to the next call
            raise
        if error is not None:
            raise error
        return answer.value

    def _ending(self) -> str:
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return ending(self._child.wait(EXIT_S))
        return "it closed its connection"

    def _lost(self, why: Literal["timeout", "ended", "spoilt"], how: str) -> HostLostError:
        """End what is left of the host."""
        stack = os.pread(self._stacks.fileno(), 1 << 20, 0).decode(errors="replace")
        self.close()
        return HostLostError(why, how, stack)


def visible_environment(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return the environment for code of users: all of the flow's variables but credentials; those
    `named` are always included."""
    return {
        name: value
        for name, value in environment.items()
        if name in named or not (name in CREDENTIALS or name.startswith(ORCHESTRATION))
    }
