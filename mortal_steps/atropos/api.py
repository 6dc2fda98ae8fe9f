"""Atropos' API server (`run-api` of atroposlib), as a trainer sees it.

It hands each batch out once and keeps no copy. So a request for a batch has a long timeout and is
never repeated: an answer that was cut off is a batch that is gone.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import httpx

from mortal_steps.atropos.groups import read_group, sequences_of
from mortal_steps.errors import BatchSourceError
from mortal_steps.system.threads import in_thread

logger = logging.getLogger(__name__)

TIMEOUT = httpx.Timeout(30.0, read=600.0)
"""Limits of a request: a batch of a million tokens takes 10 s to come."""
LIMITS = httpx.Limits(max_keepalive_connections=0)
"""Limits of connections: none is kept, since one that the server closes meanwhile looks like an
answer that was cut off."""
REMIND_S = 60.0
"""Seconds after which a wait is checked and reported again."""
PATIENCE_S = 600.0
"""Seconds that the server may be away."""
MOST_REFUSED = 3
"""Unusable batches in a row, at most."""
NOT_THERE = range(502, 505)
"""HTTP statuses of a proxy whose server is away."""
LEAST_ADVANTAGE = 1e-6
"""Advantages nearer to 0 than this are taken for 0 with an error of rounding."""
GROUPS_TO_SPARE = 2
"""Multiple of a batch: a server that holds so many sequences without making a batch never will."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What a trainer tells the server; nothing in it may be null."""

    wandb_group: str
    """Group at W&B, which also tells whose registration the server holds: it has one for all."""
    wandb_project: str
    batch_size: int
    """Sequences of a batch, for one optimizer step."""
    max_token_len: int
    """Most tokens of a sequence."""
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


class AtroposApi:
    """The server at `url`, for the run that `wanted` registers. `poll_s` are the seconds between
    two requests for a batch, `vocabulary` the tokens that the model knows."""

    def __init__(
        self, url: str, wanted: Registration, *, poll_s: float, vocabulary: int | None
    ) -> None:
        self._url, self._wanted, self._poll_s = url.rstrip("/"), wanted, poll_s
        self._vocabulary = vocabulary
        self._client = httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT, limits=LIMITS)
        self._registered = False
        self._away_since: float | None = None
        self._reminded = time.monotonic()

    async def close(self) -> None:
        await self._client.aclose()

    async def next_batch(self, stopping: asyncio.Event) -> list[Mapping[str, Any]] | None:
        """Return the groups of the next batch, as the server sends them and checked; None if
        `stopping` is set first.

        Registers the run if it is not registered. Raises `BatchSourceError` if the server is away
        for long, works for another run, can make no batch, or sends unusable ones.
        """
        refused: list[str] = []
        self._reminded = time.monotonic()
        while not stopping.is_set():
            try:
                if not self._registered:
                    await self._register()
                groups = await self._ask()
                if groups is not None:
                    await in_thread(partial(self._check, groups))
                    return groups
                await self._look_at_queue()
            except (httpx.TransportError, ServerAway) as error:
                self._wait_for_server(error)
            except BatchRefused as error:
                refused.append(str(error))
                logger.warning("%s; it is lost, and another one is asked for", error)
                if len(refused) == MOST_REFUSED:
                    raise BatchSourceError(
                        f"{self._url} has sent {MOST_REFUSED} batches in a row that cannot be "
                        f"trained on, the last one because {error}; correct the environments, then "
                        "resume the run"
                    ) from error
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self._poll_s)
        return None

    async def _ask(self) -> list[Mapping[str, Any]] | None:
        try:
            answer = await self._get("/batch")
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TransportError as error:
            raise BatchSourceError(
                f"{self._url}/batch was asked for a batch and its answer was cut off "
                f"({type(error).__name__}: {error}). If there was a batch in it, it is lost: the "
                "server sends each only once. Resume the run to go on with the next one"
            ) from error
        self._away_since = None
        if answer.status_code >= 400:
            self._registered = False  # it may have been reset
            raise BatchRefused(f"{self._url}/batch answered {answer.status_code} (such as for NaN)")
        values = await self._read("/batch", answer)
        if values.get("status") == "error":
            logger.warning("%s has lost its registration: %s", self._url, values.get("message"))
            self._registered = False
            return None
        groups: list[Mapping[str, Any]] | None = values["batch"]
        return groups

    def _check(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raise `BatchRefused` for a batch that cannot be trained on."""
        longest, known = self._wanted.max_token_len, self._vocabulary
        try:
            read = [read_group(group, max_length=longest, vocabulary=known) for group in groups]
        except BatchSourceError as error:
            raise BatchRefused(f"a batch is refused because of {error}") from error
        sequences = [each for group in read for each in sequences_of(group)]
        if len(sequences) != self._wanted.batch_size:
            raise BatchRefused(
                f"a batch is refused because it has {len(sequences)} sequences instead of "
                f"{self._wanted.batch_size}"
            )
        largest = [each.largest_advantage for each in sequences if any(each.trained)]
        if not largest:
            raise BatchRefused("a batch is refused because its masks leave no token to train on")
        if max(largest) < LEAST_ADVANTAGE:
            logger.warning(
                "all advantages of a batch are 0, so that nothing can be learned from it; do the "
                "environments give all sequences of a group the same score?"
            )

    async def _register(self) -> None:
        """Register, and read back what is registered: a second registration changes nothing, and
        the server answers it as it does the first."""
        if (await self._json("/info"))["batch_size"] == -1:
            answer = _there(await self._client.post("/register", json=asdict(self._wanted)))
            if answer.status_code != 200:
                raise BatchSourceError(
                    f"{self._url}/register answered {answer.status_code}: {answer.text[:300]}; is "
                    "it atroposlib's run-api, of version 0.4?"
                )
        info, owner = await self._json("/info"), await self._json("/wandb_info")
        wanted = self._wanted
        pairs = {
            "batch_size": (info["batch_size"], wanted.batch_size),
            "max_token_len": (info["max_token_len"], wanted.max_token_len),
            "wandb_group": (owner["group"], wanted.wandb_group),
        }
        other = [f"{name} = {there!r}, not {own!r}" for name, (there, own) in pairs.items()
                 if there != own]  # fmt: skip
        if other:
            raise BatchSourceError(
                f"{self._url} is registered for another trainer ({'; '.join(other)}), and has room "
                "for one; start a run-api of its own for this run, or restart that one if its "
                "trainer has ended"
            )
        self._registered = True

    async def _json(self, path: str) -> dict[str, Any]:
        answer = await self._get(path)
        found = await self._read(path, answer) if answer.status_code == 200 else {}
        if not found:
            raise BatchSourceError(
                f"{self._url}{path} answered {answer.status_code}; is it the address of a run-api "
                "of atroposlib?"
            )
        return found

    async def _read(self, path: str, answer: httpx.Response) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await in_thread(partial(json.loads, answer.content))
        except ValueError as error:
            raise BatchSourceError(f"{self._url}{path} answers no JSON: {error!r}") from error
        return found

    async def _look_at_queue(self) -> None:
        """Tell what there is to wait for, now and then; raise `BatchSourceError` if no batch can
        come of it."""
        if time.monotonic() - self._reminded < REMIND_S:
            return
        self._reminded = time.monotonic()
        queue = int((await self._json("/status"))["queue_size"])
        size = await self._latest_size() if queue else 0
        wanted = self._wanted.batch_size
        found = (
            f"{queue} groups wait at {self._url}, the latest of {size or 'unknown'} sequences, and "
            f"a batch has {wanted}"
        )
        if size and queue * size >= GROUPS_TO_SPARE * wanted and wanted % size:
            raise BatchSourceError(
                f"{found}: it is made of whole groups, and {wanted} is no multiple of {size}, so "
                "there will never be one. Change group_size of the environments, or the sequences "
                f"of a batch (training.batch_size x training.num_generations, now {wanted})"
            )
        logger.warning("waiting for a batch: %s", found)

    async def _latest_size(self) -> int:
        """Return the sequences of the latest group; 0 if the server cannot tell, as for a NaN."""
        answer = await self._get("/latest_example")
        if answer.status_code != 200:
            return 0
        return len((await self._read("/latest_example", answer)).get("tokens") or ())

    async def _get(self, path: str) -> httpx.Response:
        return _there(await self._client.get(path))

    def _wait_for_server(self, error: Exception) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            logger.warning("waiting for %s: %s", self._url, error)
        if now - self._away_since > PATIENCE_S:
            raise BatchSourceError(
                f"{self._url} has been away for {PATIENCE_S / 60:g} minutes ({error}); start "
                "atroposlib's run-api there, then resume the run"
            ) from error
        self._registered = False  # a server that was restarted knows nothing


def _there(answer: httpx.Response) -> httpx.Response:
    if answer.status_code in NOT_THERE:
        raise ServerAway(f"{answer.request.url} answered {answer.status_code}")
    return answer


class ServerAway(Exception):
    """A proxy answered for the server; the message says how."""


class BatchRefused(Exception):
    """A batch of the server that is not trained on; the message says why."""
