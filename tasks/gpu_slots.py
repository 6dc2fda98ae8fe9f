"""GPUs that the recipes of a Prefect server share: slots of its global concurrency limit `gpus`.

A stage holds a slot of each GPU that it computes on, by a lease that its recipe renews. The lease
lasts longer than the recipe goes on while the server is away, so that nobody else is given the GPU
meanwhile. The ids of leases are in the recipe's folder as well: a recipe that was killed gives them
back when it goes on. One that never does loses them with the lease.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.logging import get_run_logger

from mortal_steps.errors import ConfigError, MortalError, ServerError
from mortal_tasks.server_watch import PATIENCE_S, UNANSWERED

GPUS = "gpus"
"""Name of the limit."""
LONGER_S, AT_MOST_S = 60.0, 24 * 3600.0
"""Seconds that a lease outlasts the recipe; how long one may last."""
ASK_EVERY_S, RENEW_EVERY_S = 2.0, 10.0
LATER = (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS)
"""Refusals of a server that may answer otherwise soon."""


class GpuSlots:
    """The slots that the stages of one recipe hold; the process that drives it has the only one."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        """`folder` keeps the ids of the leases; `patience_s` is for how long the recipe goes on
        without the server."""
        self._folder = folder
        self._lease_s = min(patience_s + LONGER_S, AT_MOST_S)
        self._held: set[UUID] = set()
        self._giving_back = asyncio.Lock()

    async def give_back_left(self) -> None:
        """Give back what an earlier process of the recipe has left, and what could not be given
        back while the server was away; that it is away still is no error."""
        if self._folder.is_dir():
            async with get_client() as client:
                await self._give_back_unheld(client)

    @property
    def _own(self) -> str:
        """What its files hold, and those do not that came with a copy of the project, whose
        original may be running."""
        return str(self._folder.resolve())

    @contextlib.asynccontextmanager
    async def hold(self, number: int) -> AsyncIterator[None]:
        """Hold so many slots during the block, if the server has such a limit; wait until they are
        free, also while the server is away. Raises `ConfigError` if there are not so many, and
        `ServerError` if the server refuses to lend any."""
        if not number:
            yield
            return
        async with get_client() as client:
            lease = await self._take(client, number)
            if lease is None:
                yield
                return
            renewing = asyncio.create_task(self._renew(client, lease))
            try:
                yield
            finally:
                renewing.cancel()
                self._held.discard(lease)
                await self._give_back_unheld(client)

    async def _take(self, client: PrefectClient, number: int) -> UUID | None:
        """Return the lease of so many slots, None if the server has no such limit."""
        told = False
        while True:
            await self._give_back_unheld(client)
            asking = asyncio.ensure_future(self._ask(client, number))
            try:
                return await asyncio.shield(asking)
            except _Occupied:
                if not told:
                    get_run_logger().info("waits until the server has %d of its GPUs free", number)
                told = True
            except asyncio.CancelledError:  # an answer that comes is noted, and given back later
                with contextlib.suppress(_Occupied, MortalError, *UNANSWERED):
                    async with asyncio.timeout(PATIENCE_S):
                        granted = await asking
                    if granted is not None:
                        self._held.discard(granted)
                        await self._give_back_unheld(client)
                raise
            except UNANSWERED:
                pass  # the server is away, which server_watch.py says
            await asyncio.sleep(ASK_EVERY_S)

    async def _ask(self, client: PrefectClient, number: int) -> UUID | None:
        try:
            response = await client.increment_concurrency_slots_with_lease(
                names=[GPUS], slots=number, mode="concurrency", lease_duration=self._lease_s
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.LOCKED:
                raise _Occupied from None
            if error.response.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
                raise ConfigError(
                    f"the stage computes on {number} GPUs, and the server lends fewer to all "
                    f"recipes together; raise its limit: `prefect gcl update {GPUS} --limit "
                    f"{number}`"
                ) from None
            if error.response.is_client_error and error.response.status_code not in LATER:
                raise ServerError(f"the server lends no GPU to the stage: {error}") from error
            raise
        answer = response.json()
        if not answer["limits"]:
            return None
        lease = UUID(answer["lease_id"])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._held.add(lease)
        (self._folder / str(lease)).write_text(self._own, encoding="utf-8")
        return lease

    async def _renew(self, client: PrefectClient, lease: UUID) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await client.renew_concurrency_lease(lease, self._lease_s)
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.GONE:
                    get_run_logger().warning(
                        "the server has given up what this stage holds of its GPUs; another "
                        "recipe's stage may begin on them"
                    )
                    return
            except UNANSWERED:
                pass

    async def _give_back_unheld(self, client: PrefectClient) -> None:
        async with self._giving_back:  # once: the server would count a slot free for each time
            for path in self._folder.iterdir() if self._folder.is_dir() else ():
                if UUID(path.name) in self._held:
                    continue
                if path.read_text(encoding="utf-8") == self._own:
                    try:
                        async with asyncio.timeout(PATIENCE_S):
                            await client.release_concurrency_slots_with_lease(UUID(path.name))
                    except UNANSWERED:
                        return
                path.unlink(missing_ok=True)


class _Occupied(Exception):
    """All slots are held."""
