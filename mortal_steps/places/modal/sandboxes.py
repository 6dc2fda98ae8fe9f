"""Programs in Modal Sandboxes: a few of them, each of which runs one program after the other.

A lane is a sandbox and one command in it, the server of `mortal_steps.sandbox.inside`, which is
sent there when the sandbox starts and forks a process per program. Nothing in a sandbox can reach a
network. It ends when its lane is closed or lost, and by itself at the latest `LIFETIME_S` after it
was made, or when nobody has spoken to it for `IDLE_S`: so much outlives a kill of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from mortal_steps.errors import ComputeError, MortalError, TransientError
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.box import ENVIRONMENT, FIRST_UID, INSIDE
from mortal_steps.sandbox.executors import Executor, ExecutorSettings, Needs
from mortal_steps.sandbox.inside import wire
from mortal_steps.sandbox.inside.remote import BOOT
from mortal_steps.sandbox.lane import (
    GRACE_S,
    LaneLost,
    largest_answer,
    request_of,
    result_of,
)
from mortal_steps.sandbox.pool import Pool
from mortal_steps.system.threads import event_loop_in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

LANES = 4
"""Sandboxes for each image, where the configuration does not say how many."""
LIFETIME_S = 3600
IDLE_S = 300
"""As long as a container of a worker stays by default."""
EMPTY_S = 60
"""How long a sandbox may be without the server."""
MARGIN_S = 60.0
"""A lane that has less time left than this takes no other program."""
OVERHEAD_MB = 512
"""Memory of a sandbox besides what a program may use."""
CPU = 1.0
"""Cores, asked for and at most."""
BUILD_S = 540.0
"""How long an image may take to build: less than a reward host may take to start."""
UNREACHABLE_S = 5.0
"""How long Modal is asked again for a sandbox before that is a lost lane."""
CLOSE_S = 5.0
CHUNK = 1 << 20
"""Bytes of input that are sent at a time; Modal takes 16 MiB."""


class ModalExecutor(Executor):
    """Modal Sandboxes, of an app of their own beside the one that MORTAL is deployed as."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self.settings = settings
        self._pools: dict[tuple[int, int], Pool[ModalLane]] = {}
        self._images: dict[int, Any] = {}
        self._making = threading.Lock()
        self._client: Any = None
        self._app: Any = None
        self._connecting = asyncio.Lock()
        self._loop = event_loop_in_thread("modal")
        with _present(settings.variables):  # the client reads some of them when it is imported
            import modal
        self._modal = modal

    def prepare(self, needs: Needs) -> None:
        """Build the image, unless it is built."""
        self.wait(self._build(needs), BUILD_S + UNREACHABLE_S)

    def pool(self, needs: Needs) -> Pool[ModalLane]:
        with self._making:
            key = (id(needs.image), needs.memory_mb)
            self._images[key[0]] = needs.image  # as long as it is kept, its id is nobody else's
            if key not in self._pools:
                self._pools[key] = Pool(
                    partial(ModalLane, self, needs),
                    self.settings.lanes or LANES,
                    patience_s=self.settings.patience_s,
                )
            return self._pools[key]

    def close(self) -> None:
        with self._making:
            pools, self._pools = list(self._pools.values()), {}
        self.wait(self._end([lane for pool in pools for lane in pool.lanes()]), 2 * CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def wait(self, work: Coroutine[Any, Any, T], within_s: float) -> T:
        """Return the result of `work` in the executor's thread; raises `TimeoutError`."""
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, within_s), self._loop
        ).result()

    async def create(self, needs: Needs) -> Any:
        """Make a sandbox with what is needed, and no network; raise what Modal does."""
        app = await self._connected()
        return await self._modal.Sandbox.create.aio(
            app=app,
            image=self._image(needs),
            block_network=True,
            cpu=(CPU, CPU),
            memory=(min(512, needs.memory_mb), needs.memory_mb + OVERHEAD_MB),
            timeout=LIFETIME_S,
            idle_timeout=EMPTY_S,
        )

    async def _build(self, needs: Needs) -> None:
        try:
            app = await call_with_retries("Modal", self._connected)
            await asyncio.wait_for(self._image(needs).build.aio(app), BUILD_S)
        except MortalError:
            raise
        except Exception as error:
            raise ComputeError(
                f"{needs.who}: Modal does not build the image of its programs: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _image(self, needs: Needs) -> Any:
        """By default the one of the container that this is: programs see what is installed here."""
        if needs.image is not None:
            return needs.image
        own = self.settings.variables.get("MODAL_IMAGE_ID")
        if own is not None:
            return self._modal.Image.from_id(own)
        return self._modal.Image.debian_slim(python_version="{}.{}".format(*sys.version_info))

    async def _connected(self) -> Any:
        """Return the app; the client that finds it stays the one of this process."""
        async with self._connecting:
            if self._app is None:
                with _present(self.settings.variables):
                    self._client = await self._modal.Client.from_env.aio()
                    self._app = await self._modal.App.lookup.aio(
                        f"{self.settings.app}-sandboxes", create_if_missing=True
                    )
            return self._app

    async def _end(self, lanes: list[ModalLane]) -> None:
        await asyncio.gather(*(lane.end() for lane in lanes))
        if self._client is not None:
            await self._client.close.aio()


@contextlib.contextmanager
def _present(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables inside the block, for a client that reads no others."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class ModalLane:
    """A sandbox that runs programs; raises `LaneLost`, and `ComputeError` where Modal refuses."""

    def __init__(self, executor: ModalExecutor, needs: Needs) -> None:
        self._executor = executor
        self._needs = needs
        self._sandbox: Any = None
        self._server: Any = None
        self._answers: AsyncGenerator[bytes, None] | None = None
        self._arrived = bytearray()
        self._made = self._spoken = time.monotonic()
        self._is_used_up = False
        self._do(self._begin, executor.settings.patience_s)

    @property
    def is_worn_out(self) -> bool:
        """Return whether it is about to end by itself, or a program left something behind."""
        now = time.monotonic()
        lasts = min(self._made + LIFETIME_S, self._spoken + IDLE_S) - now
        return self._is_used_up or lasts < MARGIN_S

    @property
    def sandbox_id(self) -> str:
        return str(self._sandbox.object_id)

    def run(self, program: Program) -> ExecutionResult:
        within_s = program.limits.latest_s + GRACE_S
        answer = self._do(
            partial(self._ask, request_of(program), largest_answer(program)), within_s
        )
        self._spoken = time.monotonic()
        try:
            self._is_used_up = bool(answer["used_up"])
            return result_of(answer)
        except (KeyError, ValueError) as error:
            raise self._lost(f"its answer is no result: {error!r}") from None

    def close(self) -> None:
        self._executor.wait(self.end(), 2 * CLOSE_S)

    async def end(self) -> bool:
        """End the sandbox; False where Modal cannot be asked, and its own clock has to do it."""
        if self._sandbox is None:
            return False
        try:
            await asyncio.wait_for(self._sandbox.terminate.aio(), CLOSE_S)
            if self._answers is not None:
                await asyncio.wait_for(self._answers.aclose(), CLOSE_S)
        except Exception as error:  # noqa: BLE001 - the boundary: it is given up in any case
            logger.warning(
                "a Modal Sandbox could not be ended, and ends at its own timeout: %r", error
            )
            return False
        return True

    async def _begin(self) -> None:
        self._sandbox = await call_with_retries(
            "Modal Sandboxes",
            partial(self._executor.create, self._needs),
            until=time.time() + UNREACHABLE_S,
        )
        self._made = time.monotonic()
        environment = {name: value for name, value in ENVIRONMENT.items() if name != "PATH"}
        self._server = await self._sandbox.exec.aio(
            "python3", "-s", "-c", BOOT, str(IDLE_S), env=environment, text=False
        )
        self._answers = aiter(self._server.stdout)
        files = {
            path.name: path.read_text(encoding="utf-8") for path in sorted(INSIDE.glob("*.py"))
        }
        await self._send(wire.encode({"files": files}))
        start = {"enclosure": "container", "uid": FIRST_UID, "filter": "", "packages": []}
        if "ready" not in await self._ask(wire.encode(start), largest=1024):
            raise ValueError("it did not report that it is ready")
        self._spoken = time.monotonic()

    async def _ask(self, message: bytes, largest: int) -> dict[str, Any]:
        await self._send(message)
        length, texts = wire.HEADER.unpack(await self._receive(wire.HEADER.size))
        if length + texts > largest:
            raise ValueError(f"an answer of {length + texts} bytes")
        return wire.decode(await self._receive(length + texts), length)

    async def _send(self, content: bytes) -> None:
        for start in range(0, len(content), CHUNK):
            self._server.stdin.write(content[start : start + CHUNK])
            await self._server.stdin.drain.aio()

    async def _receive(self, size: int) -> bytes:
        assert self._answers is not None  # _begin() has it before it asks
        while len(self._arrived) < size:
            try:
                self._arrived += await anext(self._answers)
            except StopAsyncIteration:
                raise EOFError("its server ended") from None
        content = bytes(self._arrived[:size])
        del self._arrived[:size]
        return content

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]], within_s: float) -> T:
        """Return what `work` gives; whatever else comes of it, the lane is lost."""
        try:
            return self._executor.wait(work(), within_s)
        except TransientError as error:
            raise self._lost(str(error)) from error
        except MortalError:
            raise
        except TimeoutError:
            raise self._lost(f"no answer within {within_s:g} s") from None
        except EOFError as error:
            raise self._lost(str(error)) from None
        except Exception as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error

    def _lost(self, how: str) -> LaneLost:
        """End the sandbox, and tell what its server said last."""
        said = ""
        if self._executor.wait(self.end(), 2 * CLOSE_S) and self._server is not None:
            with contextlib.suppress(Exception):  # nothing it says is worth another error
                said = self._executor.wait(self._server.stderr.read.aio(), CLOSE_S).decode(
                    errors="replace"
                )
        name = "no sandbox" if self._sandbox is None else f"Modal Sandbox {self.sandbox_id}"
        return LaneLost(": ".join([name, how, *([said.strip()[-2000:]] if said.strip() else [])]))
