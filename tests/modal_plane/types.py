"""The vocabulary of the plane. Read this file first.

An `App` is deployed in numbered `Deployment`s. Its `Function`s (a class is one Function named
`Name.*`, and each set of parameters and options is a Function of its own) have a queue of `Input`s
and a pool of `Container`s. A `Call` is what `.remote` and `.spawn` make: one or more Inputs, whose
outputs are kept in the order in which they came.

`World` holds them all; the classes that answer RPCs share it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from asyncio.subprocess import Process
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from modal._utils.jwt_utils import DecodedJwt
from modal_proto import api_pb2 as pb

from .events import EventLog
from .options import Options

Result = pb.GenericResult

ENVIRONMENT = "main"
"""The name that an empty environment name stands for."""


class Signal:
    """A condition that any number of tasks of one event loop can wait for, with a timeout."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everyone who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, until: float) -> None:
        """Until the next `notify`, or until `time.time()` is `until`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), max(0.001, until - time.time()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who sent an RPC."""

    name: str
    """A container's id, or `client-3` for the third connection that clients opened."""
    container: Container | None
    """None for a client."""
    server_url: str
    """Address of this service, as this caller reaches it."""
    files_url: str
    """Base address of blobs and volume blocks, as this caller reaches it."""
    version: str = ""
    """Of its `modal`."""


@dataclass(kw_only=True, slots=True)
class FunctionSpec:
    """What one `FunctionCreate` said; replaced as a whole, never changed."""

    definition: pb.Function
    data: pb.FunctionData
    definition_id: str


@dataclass(kw_only=True, slots=True)
class Deployment:
    """One `AppPublish`."""

    version: int
    function_ids: dict[str, str]
    class_ids: dict[str, str]
    specs: dict[str, FunctionSpec]
    """Function name to what it was in this version."""
    tag: str
    client_version: str
    deployed_at: float


@dataclass(kw_only=True, slots=True)
class App:
    """A deployed app, or one of `modal run`."""

    id: str
    name: str
    environment: str
    state: pb.AppState.ValueType
    deployments: list[Deployment] = field(default_factory=list)
    """Oldest first; the last one is live."""
    logs: list[tuple[str, str, str]] = field(default_factory=list)
    """(container id, function id, line)"""
    log_signal: Signal = field(default_factory=Signal)
    last_heartbeat: float = field(default_factory=time.time)
    stopped_at: float = 0.0

    @property
    def is_stopped(self) -> bool:
        return self.state == pb.APP_STATE_STOPPED

    @property
    def live(self) -> Deployment | None:
        return self.deployments[-1] if self.deployments else None


@dataclass(kw_only=True, slots=True)
class Function:
    """A pool of containers and the queue that feeds it."""

    id: str
    app_id: str
    spec: FunctionSpec
    staged: FunctionSpec | None = None
    """Made by a deployment that is not published yet."""
    base_id: str = ""
    """The class's function that this set of parameters and options belongs to."""
    params: bytes = b""
    pinned_version: int = 0
    """The deployment that it stays with; 0 follows the live one."""
    queue: collections.deque[Input] = field(default_factory=collections.deque)
    signal: Signal = field(default_factory=Signal)
    containers: dict[str, Container] = field(default_factory=dict)
    failed_starts: int = 0

    @property
    def definition(self) -> pb.Function:
        return self.spec.definition

    @property
    def name(self) -> str:
        return self.definition.function_name

    @property
    def gpu(self) -> str:
        """`A100`, `A100:2`, or empty."""
        gpu = self.definition.resources.gpu_config
        return f"{gpu.gpu_type}:{gpu.count}" if gpu.count > 1 else gpu.gpu_type


InputState = Literal["queued", "waiting", "running", "done"]


@dataclass(kw_only=True, slots=True)
class Input:
    """One set of arguments of a call."""

    id: str
    call: Call
    index: int
    body: pb.FunctionInput
    state: InputState = "queued"
    retry: int = 0
    """How often it was tried again after a failure."""
    lost: int = 0
    """How often its container went away under it."""
    container: Container | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def jwt(self) -> str:
        return DecodedJwt.encode_without_signature(
            {
                "idx": self.index,
                "input_id": self.id,
                "function_call_id": self.call.id,
                "entry_id": "1-0",
                "retry_count": self.retry,
            }
        )


@dataclass(kw_only=True, slots=True)
class Call:
    """What `.remote`, `.spawn` or `.map` started."""

    id: str
    function: Function
    invocation: pb.FunctionCallInvocationType.ValueType
    spawned_by: str
    inputs: dict[int, Input] = field(default_factory=dict)
    outputs: list[tuple[int, pb.FunctionGetOutputsItem]] = field(default_factory=list)
    """(number of the output, output)"""
    num_outputs: int = 0
    attached: set[str] = field(default_factory=set)
    """Names of callers that asked for its outputs and did not spawn it."""
    signal: Signal = field(default_factory=Signal)

    @property
    def num_unfinished(self) -> int:
        return sum(one.state != "done" for one in self.inputs.values())


@dataclass(kw_only=True, slots=True)
class MountedVolume:
    """A container's own copy of a volume."""

    path: Path
    seen: dict[str, tuple[int, ...]]
    """Stamp of each file when the copy was last in step with the committed state."""


@dataclass(kw_only=True, slots=True)
class Cluster:
    """Containers that start together, and of which none takes inputs once one has ended."""

    id: str
    addresses: list[str]
    """Of each container; all of them are this machine."""
    containers: list[Container] = field(default_factory=list)
    """By rank."""
    num_present: int = 0
    signal: Signal = field(default_factory=Signal)


@dataclass(kw_only=True, slots=True)
class Container:
    """A process of `modal._container_entrypoint`; Modal's word is task."""

    id: str
    function: Function
    directory: Path
    python: str = ""
    process: Process | None = None
    inputs: dict[str, Input] = field(default_factory=dict)
    volumes: dict[str, MountedVolume] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    """Inputs that the next heartbeat tells it to cancel."""
    cancel_signal: Signal = field(default_factory=Signal)
    overdue: set[str] = field(default_factory=set)
    """Inputs that hit their timeout and that it has not given up yet."""
    ending: str = ""
    """Why it goes, once it takes no more inputs: `idle`, `preempted`, `killed`, ..."""
    is_ready: bool = False
    created_at: float = field(default_factory=time.time)
    idle_since: float = field(default_factory=time.time)
    result: pb.GenericResult | None = None
    """Why it could not start, in its own words."""
    cluster: Cluster | None = None
    rank: int = 0
    """In its cluster."""
    broadcast: collections.deque[pb.FunctionGetInputsItem] = field(
        default_factory=collections.deque
    )
    """Inputs that the first container of its cluster has taken and this one has not."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def drain(self, why: str) -> None:
        """Let it, and its cluster, end after its current inputs."""
        for one in self.cluster.containers if self.cluster else [self]:
            one.ending = one.ending or why
        self.function.signal.notify()


class World:
    """Everything that more than one part of the plane looks at."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.state = options.state
        self.events = EventLog(options.state / "events.jsonl")
        self.apps: dict[str, App] = {}
        self.deployed: dict[tuple[str, str], str] = {}
        """(environment, name) to app id"""
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, str] = {}
        """class id to app id"""
        self.calls: dict[str, Call] = {}
        self.inputs: dict[str, Input] = {}
        self.containers: dict[str, Container] = {}
        """Those that ended too."""
        self._ids: collections.Counter[str] = collections.Counter()
        self._background: set[asyncio.Task[None]] = set()

    def new_id(self, prefix: str) -> str:
        """`fu-000012` for `fu`."""
        self._ids[prefix] += 1
        return f"{prefix}-{self._ids[prefix]:06d}"

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run something beside; an error in it is printed by asyncio."""
        task = asyncio.get_running_loop().create_task(job)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def cancel_background(self) -> None:
        """Break off everything that `start` started."""
        for task in list(self._background):
            task.cancel()

    def functions_of(self, app_id: str) -> list[Function]:
        """All functions of an app, also those of other parameters or versions."""
        return [one for one in self.functions.values() if one.app_id == app_id]

    def open_containers(self) -> list[Container]:
        """Containers that have not ended."""
        return [one for f in self.functions.values() for one in f.containers.values()]


def environment_name(name: str) -> str:
    """The environment that a request means."""
    return name or ENVIRONMENT
