"""Shows a run's steps in the Prefect UI as segments: flow runs below the run's own flow run.

The page of the run shows its segments, evaluations and checkpoints as bars on a timeline; the page
of a segment shows the stages of its steps. Prefect's graph is limited to 10,000 nodes, which a run
that showed every stage itself would reach after about 1,250 steps.

A segment only groups task runs. It has no results and no retries, and is never resumed. A process
that continues the run begins a new segment at the step where the run stands, and marks as Crashed
what a killed process has left Running. If the server does not answer, it is told later or never: no
step waits for it longer than `best_effort` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from httpx import codes
from prefect import Flow, Task
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running

from mortal_steps.errors import RunStoppedError, ServerError
from mortal_steps.runs.run import Run
from mortal_tasks.best_effort import best_effort
from mortal_tasks.server_watch import ServerWatch

MOST_SEGMENTS = 50
"""The most segments that a run is divided into, unless its configuration sets their length."""
SHORTEST = 10
"""The shortest segment in steps, unless the run's configuration sets the length."""
UNFINISHED = [StateType.PENDING, StateType.RUNNING]
PAGE = 200
RUN_TAG = "run:"
"""Before the run's id: a tag of all its flow runs."""
LAST_TRIES = 3
"""Attempts, at the run's end, to tell the server what it has missed about segments."""
BETWEEN_TRIES_S = 2.0


def _steps() -> None:
    """This flow is never called. The server lists segments under its name."""


SEGMENT = Flow(fn=_steps, name="grpo-steps", validate_parameters=False)
NODE = Task(fn=_steps, name="steps")


def segment_steps(run: Run) -> int:
    """Steps of each of the run's segments."""
    wanted = run.config.logging.segment_steps
    return wanted or max(SHORTEST, math.ceil(run.info.num_steps / MOST_SEGMENTS))


def segment_name(first: int, last: int) -> str:
    """Name of a segment's flow run, and of its bar on the page of the run."""
    return f"step {first}" if first == last else f"steps {first}-{last}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A segment that the server knows."""

    flow_run_id: UUID
    context: FlowRunContext
    """The Prefect context in which the segment's task runs are made."""


@dataclass(slots=True)
class Opened:
    """A segment that was requested from the server."""

    making: asyncio.Task[Segment | None]
    starting: asyncio.Task[bool] | None = None
    """The request that sets the segment's flow run to Running; it is sent with the segment's first
    stage."""


class Segments:
    """The segments of one run, for the attempt of one flow run."""

    def __init__(
        self, run: Run, client: PrefectClient, parent: FlowRunContext, server: ServerWatch
    ) -> None:
        self._run = run
        self._client = client
        self._server = server
        self._parent = parent
        self._length = segment_steps(run)
        self._tags = [f"{RUN_TAG}{run.info.run_id}", f"uid:{run.info.uid[:12]}"]
        self._open: dict[int, Opened] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._not_told: list[Callable[[], Awaitable[object]]] = []
        """What the server has yet to hear of the ends of segments."""

    @contextlib.asynccontextmanager
    async def at(self, step: int, *, begins: bool = True) -> AsyncIterator[None]:
        """Task runs that are made in the block belong to the segment of `step`.

        If that step is done, they belong to the segment of the first step that is not. If the
        server could not be told of that segment, they belong to the run itself.

        Without `begins` the segment does not begin with them, for their step has not.

        The last step of a segment makes the next one, so that no step waits for the server.
        """
        run = self._run  # whose steps before this one are done, and their segments closed
        step = min(max(step, run.manifest.step), run.info.num_steps - 1)
        opened = self._opened(step)
        if step + 1 < run.info.num_steps:
            self._opened(step + 1)
        segment = await asyncio.shield(opened.making)
        if segment is not None and opened.starting is None and begins:
            opened.starting = asyncio.create_task(self._start(segment))
        with _inside(segment):
            yield

    def _opened(self, step: int) -> Opened:
        number = step // self._length
        if number not in self._open:
            self._open[number] = Opened(asyncio.create_task(self._make(number)))
        return self._open[number]

    def end(self, before: int) -> None:
        """Begin to end the segments whose steps are all before this one."""
        for number in [n for n in self._open if (n + 1) * self._length <= before]:
            ending = asyncio.create_task(self._end(self._open.pop(number), Completed()))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self, ended: BaseException | None) -> None:
        """End all segments in the state in which the run itself has ended."""
        if isinstance(ended, ServerError):
            return  # there is nobody to tell
        state: State[Any] = Cancelled(message=str(ended))
        if ended is None:
            state = Completed()
        elif isinstance(ended, Exception) and not isinstance(ended, RunStoppedError):
            state = Failed(message=str(ended))
        await asyncio.gather(*self._ending)
        for opened in self._open.values():
            await self._end(opened, state)
        for _ in range(LAST_TRIES):
            not_told, self._not_told = self._not_told, []
            for tell in not_told:  # the server may be back by now
                await self._tell(tell)
            if not self._not_told:
                return
            await asyncio.sleep(BETWEEN_TRIES_S)

    async def begin(self) -> None:
        """Mark what earlier processes left unfinished, and tag the flow run so that it can be
        found. This process holds the run's lease by now, so nobody else works on the run."""
        await best_effort(self._mark_what_was_left(), "what was left unfinished stays Running")

    async def _mark_what_was_left(self) -> None:
        """Mark as Crashed what earlier processes have left unfinished: task runs, segments, and
        flow runs that no deployment made. Flow runs of a deployment are left to Prefect's
        automations."""
        own = self._parent_run.id
        of_run = FlowRunFilter.model_validate({"tags": {"all_": [self._tags[1]]}})
        state = {"type": {"any_": UNFINISHED}}
        crashed: State[Any] = Crashed(message="The process that drove the run ended.")
        left = TaskRunFilter.model_validate({"state": state})
        while runs := await self._client.read_task_runs(
            flow_run_filter=of_run, task_run_filter=left, limit=PAGE
        ):
            for each in runs:
                await self._client.set_task_run_state(each.id, crashed, force=True)
        unfinished = {"tags": {"all_": [self._tags[1]]}, "state": state}
        for flow_run in await self._client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(unfinished)
        ):
            if flow_run.id != own and flow_run.deployment_id is None:
                await self._client.set_flow_run_state(flow_run.id, crashed, force=True)
        tags = dict.fromkeys([*self._parent_run.tags, *self._tags])
        await self._client.update_flow_run(own, tags=list(tags))

    @property
    def _parent_run(self) -> FlowRun:
        flow_run = self._parent.flow_run
        assert isinstance(flow_run, FlowRun)
        return flow_run

    async def _make(self, number: int) -> Segment | None:
        if self._server.away or self._server.forgotten:
            return None
        end = min((number + 1) * self._length, self._run.info.num_steps)
        first = max(number * self._length, min(self._run.manifest.step, end - 1))
        name = segment_name(first, end - 1)
        flow_run = await best_effort(self._made(name), f"segment {name!r} is not shown")
        if flow_run is None:
            return None
        context = self._parent.model_copy(
            update={"flow_run": flow_run, "task_run_dynamic_keys": {}}
        )
        return Segment(flow_run_id=flow_run.id, context=context)

    async def _start(self, segment: Segment) -> bool:
        """Whether the server may hear only later that the segment runs: after its end, even."""
        if self._server.away:
            return False
        running: State[Any] = Running()
        starting = self._client.set_flow_run_state(segment.flow_run_id, running, force=True)
        return await best_effort(starting, "a segment that has begun is shown as Pending") is None

    async def _made(self, name: str) -> FlowRun:
        node = uuid4()
        try:
            await self._client.create_task_run(
                NODE,
                id=node,
                flow_run_id=self._parent_run.id,
                name=name,
                dynamic_key=f"{name}-{node.hex[:8]}",  # each attempt has its own
                state=Pending(),
            )
            return await self._client.create_flow_run(
                SEGMENT,
                name=name,
                tags=self._tags,
                parent_task_run_id=node,
                state=Pending(),
            )
        except BaseException:  # a server that dies may have made it, and nobody has heard of it
            self._not_told.append(lambda: self._end_node(node))
            raise

    async def _end_node(self, node: UUID) -> bool:
        try:
            await self._client.set_task_run_state(node, Completed(), force=True)
        except PrefectHTTPStatusError as error:
            if error.response.status_code != codes.NOT_FOUND:
                raise
        return True

    async def _end(self, opened: Opened, state: State[Any]) -> None:
        segment = await opened.making
        began_unheard = opened.starting is not None and await opened.starting
        if segment is not None:
            set_state, flow_run_id = self._client.set_flow_run_state, segment.flow_run_id

            def tell() -> Awaitable[object]:
                return set_state(flow_run_id, state, force=True)

            await self._tell(tell)
            if began_unheard:
                self._not_told.append(tell)

    async def _tell(self, tell: Callable[[], Awaitable[object]]) -> None:
        failed = "the end of a segment is not shown yet"
        if self._server.away or await best_effort(tell(), failed) is None:
            self._not_told.append(tell)


@contextlib.contextmanager
def _inside(segment: Segment | None) -> Iterator[None]:
    if segment is None:
        yield
        return
    with segment.context.model_copy():  # one context is entered by one stage at a time
        yield


@contextlib.asynccontextmanager
async def in_segments(run: Run, server: ServerWatch) -> AsyncIterator[Segments]:
    """The segments of the flow run in which this is called; they end with the block."""
    parent = FlowRunContext.get()
    assert parent is not None, "segments belong to a flow run"
    async with get_client() as client:
        segments = Segments(run, client, parent, server)
        try:
            yield segments
        except BaseException as ended:
            await segments.close(ended)
            raise
        await segments.close(None)
