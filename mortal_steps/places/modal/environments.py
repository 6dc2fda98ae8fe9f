"""Environments in Modal Sandboxes: the link to the relay in one, see `mortal_steps.hosts.remote`.

A Sandbox and one command in it, which talk by the command's input and output. It ends when the link
is closed, when its command has ended (`EMPTY_S`), which does so once nobody speaks to it any more,
and at the latest after `LIFETIME_S`.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import pickle
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import modal

from mortal_steps.config import ModalConfig
from mortal_steps.errors import ComputeError, MortalError, TransientError
from mortal_steps.hosts.relay import ALIVE_EVERY_S, BOOT, Begin
from mortal_steps.hosts.remote import RemoteHost
from mortal_steps.places.modal.deployed import secrets_of
from mortal_steps.places.modal.files.project import project_files
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.system.texts import printable
from mortal_steps.system.threads import event_loop_in_thread

LIFETIME_S = 24 * 3600
"""All that Modal allows."""
EMPTY_S = 60
"""How long a Sandbox may be without the relay."""
BEGIN_S = 1800.0
"""How long the image may take to build, and the Sandbox to start."""
SILENT_S = 60.0
"""Silence of a Sandbox after which it is lost."""
CLOSE_S = 5.0
LONGEST_SHOWN = 1000
"""Characters of a Sandbox's last words."""
CHUNK = 1 << 20
"""Bytes of input that are sent at a time; Modal takes 16 MiB."""
HEARD = pickle.dumps(("heard",))


def sandbox_host(
    options: ModalConfig,
    begin: Begin,
    *,
    needed: Sequence[str],
    code: Sequence[str],
    objects: Sequence[str],
    before_start: Callable[[], None] | None,
) -> RemoteHost:
    """Return the host, not started, for user's `code` and `objects`; pip installs what is `needed`
    beside the packages that the configuration names. Raises what `project_files` does."""
    connect = partial(SandboxLink, options, needed)
    return RemoteHost(connect, begin, project_files(code, objects), before_start)


class SandboxLink:
    """A `Link` to a Sandbox of its own. Raises `ComputeError` where Modal refuses, and
    `TransientError` where it cannot be reached."""

    def __init__(
        self,
        options: ModalConfig,
        needed: Sequence[str],
        receive: Callable[[bytes], None],
        ended: Callable[[str], None],
    ) -> None:
        self._loop = event_loop_in_thread("environments")
        self._options, self._needed = options, needed
        self._receive, self._ended = receive, ended
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._work: list[asyncio.Task[Any]] = []
        self._sandbox: Any = None
        try:
            self._do(self._begin(), BEGIN_S)
        except TimeoutError:
            self.close()
            raise TransientError(f"a Modal Sandbox has not begun within {BEGIN_S:g} s") from None
        except BaseException:
            self.close()
            raise

    def send(self, content: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._unsent.put_nowait, content)

    def close(self) -> None:
        try:
            self._do(self._end(), 3 * CLOSE_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, work: Any, within_s: float) -> None:
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, within_s), self._loop).result()

    async def _begin(self) -> None:
        try:
            process = await call_with_retries("Modal Sandboxes", self._boot)
        except MortalError:
            raise
        except Exception as error:
            raise ComputeError(
                "compute.modal.environment: Modal makes no Sandbox with this image and these "
                f"packages: {type(error).__name__}: {error}"
            ) from error
        log = asyncio.create_task(_log(process))
        works = self._write(process), self._read(process, log)
        self._work = [log, *(asyncio.create_task(self._until_lost(each)) for each in works)]

    async def _boot(self) -> Any:
        await self._terminate()  # that of an earlier try
        self._sandbox = await _create(self._options, self._needed)
        return await self._sandbox.exec.aio("python", "-P", "-c", BOOT, text=False)

    async def _until_lost(self, work: Awaitable[str]) -> None:
        try:
            how = await work
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, the link is lost
            how = f"was lost: {type(error).__name__}: {error}"
        self._ended(f"its Modal Sandbox {self._sandbox.object_id} {how}")
        await self._terminate()

    async def _write(self, process: Any) -> str:
        while True:
            content = HEARD
            with contextlib.suppress(TimeoutError):
                # `wait_for` of Python 3.11 overlooks a cancellation beside what arrives.
                async with asyncio.timeout(ALIVE_EVERY_S):
                    content = await self._unsent.get()
            while not self._unsent.empty():
                content += self._unsent.get_nowait()
            try:
                for start in range(0, len(content), CHUNK):
                    process.stdin.write(content[start : start + CHUNK])
                    await process.stdin.drain.aio()
            except Exception:
                await asyncio.sleep(2 * CLOSE_S)  # `_read` says more, if it has ended
                raise

    async def _read(self, process: Any, log: asyncio.Task[str]) -> str:
        output = aiter(process.stdout)
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    content = await anext(output)
                self._receive(content)
        except StopAsyncIteration:
            last = ""
            with contextlib.suppress(Exception):  # that it ended counts
                last = await asyncio.wait_for(log, CLOSE_S)
            return f"ended: {last}"
        except TimeoutError:
            return f"said nothing for {SILENT_S:g} s"

    async def _end(self) -> None:
        for each in self._work:
            each.cancel()
        if self._work:
            await asyncio.wait(self._work, timeout=CLOSE_S)
        await self._terminate()

    async def _terminate(self) -> None:
        if self._sandbox is not None:
            with contextlib.suppress(modal.exception.Error, OSError, TimeoutError):  # by its clock
                await asyncio.wait_for(self._sandbox.terminate.aio(), CLOSE_S)


async def _create(options: ModalConfig, needed: Sequence[str]) -> Any:
    chosen = options.environment
    assert chosen is not None
    if chosen.image is None:
        base = modal.Image.debian_slim(python_version="{}.{}".format(*sys.version_info))
    else:
        base = modal.Image.from_registry(chosen.image).entrypoint([])
    return await modal.Sandbox.create.aio(
        app=await modal.App.lookup.aio(f"{options.app}-sandboxes", create_if_missing=True),
        image=base.uv_pip_install(*needed, *chosen.packages),
        secrets=secrets_of(options),
        cpu=chosen.cpu,
        memory=chosen.memory_mb,
        region=options.region,
        timeout=LIFETIME_S,
        idle_timeout=EMPTY_S,
    )


async def _log(process: Any) -> str:
    """Pass on what a process in a Sandbox prints; return the last of it."""
    said, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
    async for content in process.stderr:
        text = printable(decoder.decode(content))
        sys.stderr.write(text)
        sys.stderr.flush()
        said = (said + text)[-LONGEST_SHOWN:]
    return said.strip()
