"""Shows a run's steps in the Prefect UI as segments: subflows of the run's own flow run.

The page of the run shows its segments, evaluations and checkpoints as bars on a timeline; the page
of a segment shows the stages of its steps. Prefect's graph is limited to 10,000 nodes, which a run
that showed every stage itself would reach after about 1,250 steps.

The steps of two segments overlap where rollouts run ahead of training, and the first stage of a
step may be asked for while the step before is trained. So a segment does not call the stages. It is
a subflow that waits in a thread of its own until its steps are done; the stages of these steps are
called in its context. In the main thread it would also take the signals from the run.

A segment has no results and no retries, and is never resumed. A process that continues the run
begins a new segment at the step where the run stands, and marks as Crashed what a killed process
has left Running. While the server does not answer, there is no segment to show stages in. They are
task runs all the same, retried and cached, but the server hears nothing of them: when it is back, a
single bar says which steps it has missed.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextvars import Context, copy_context
from typing import Any
from uuid import uuid4

from prefect import Flow, tags, task
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Crashed, Failed

from mortal_steps.errors import LeaseLostError, RunStoppedError, ServerError
from mortal_steps.runs.run import Run
from mortal_tasks.left_behind import STAYS, UNFINISHED, mark_task_runs
from mortal_tasks.prefect_patches import hide_unshown, unshown
from mortal_tasks.segment_message import segment_message, segment_name
from mortal_tasks.server_watch import PATIENCE_S, ServerWatch, best_effort

logger = logging.getLogger(__name__)

FLOW = "grpo-steps"
"""The server lists segments under this name."""
THREAD = "segment of "
"""How the names of the threads begin in which segments wait."""
MOST_SEGMENTS = 50
"""The most segments that a run is divided into, unless its configuration sets their length."""
SHORTEST = 10
"""The shortest segment in steps, unless the run's configuration sets the length."""
RUN_TAG = "run:"
"""Before the run's id: a tag of all its flow runs."""


def segment_steps(run: Run) -> int:
    wanted = run.config.logging.segment_steps
    return wanted or max(SHORTEST, math.ceil(run.info.num_steps / MOST_SEGMENTS))


@task(name="server_away", task_run_name="server away: {steps}", persist_result=False)
async def server_away(steps: str) -> None:
    """Show the steps of which the server was told nothing."""


class Segment:
    """A subflow that waits in a thread for the end of its steps."""

    def __init__(self, first: int, last: int, around: Context, run_tags: list[str]) -> None:
        self.first, self.last = first, last
        self.name = name = segment_name(first, last)
        self.since = time.monotonic()
        self._tags = run_tags
        self._begun: Future[FlowRun | None] = Future()
        self._reason = f"no answer in {PATIENCE_S:g} s"
        self._over: Future[State[Any]] = Future()
        self._shown = True
        # A daemon, so that a process whose server is gone for good can end.
        self._thread = threading.Thread(
            target=around.copy().run, args=(self._run,), name=f"{THREAD}{name}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        def wait_for_the_end() -> State[Any]:
            context = FlowRunContext.get()
            assert context is not None and isinstance(context.flow_run, FlowRun)
            self._begun.set_result(context.flow_run)
            return self._over.result()

        # Prefect makes the key of the subflow's task run of this name. It is a new one, so that a
        # Retry of the run does not take a segment of the attempt before for this one.
        wait_for_the_end.__qualname__ = f"{FLOW}-{uuid4().hex}"
        subflow = Flow(
            fn=wait_for_the_end, name=FLOW, flow_run_name=self.name, persist_result=False
        )
        try:
            with tags(*self._tags):
                subflow(return_state=True)
        except BaseException as error:  # of the server's absence, or of a run that is suspended
            if not self._begun.done():
                self._reason = str(error) or self._reason
                self._begun.set_result(None)
            logger.debug("the subflow %s has ended", self.name, exc_info=True)

    async def flow_run(self) -> FlowRun | None:
        """Its flow run; None, and a warning, if the server does not make it in time."""
        if not self._shown:
            return None
        await asyncio.wait({asyncio.wrap_future(self._begun)}, timeout=PATIENCE_S)
        flow_run = self._begun.result() if self._begun.done() else None
        if flow_run is None:
            self._shown = False
            warn = get_run_logger().warning
            warn("%s: not shown as a segment: %s", self.name, self._reason)
        return flow_run

    def end(self, state: State[Any]) -> None:
        """Let the subflow end in this state."""
        self._over.set_result(state)

    def ending(self) -> bool:
        """Return whether the subflow has yet to tell the server of its end."""
        return self._thread.is_alive()

    async def ended(self) -> None:
        """Return once the subflow has ended, or has not for some seconds."""
        await asyncio.to_thread(self._thread.join, PATIENCE_S)


class Segments:
    """The segments of one run, for the attempt of one flow run."""

    def __init__(
        self, run: Run, client: PrefectClient, parent: FlowRunContext, server: ServerWatch
    ) -> None:
        self._run = run
        self._client = client
        self._server = server
        self._parent = parent
        self._around = copy_context()
        self._length = segment_steps(run)
        self._tags = [f"{RUN_TAG}{run.info.run_id}", f"uid:{run.info.uid[:12]}"]
        self._open: dict[int, Segment] = {}
        self._unshown: list[int] = []
        """The first and the last step without a segment, of which the server does not know."""
        hide_unshown()
        self._ending: list[Segment] = []

    @contextlib.asynccontextmanager
    async def at(self, step: int) -> AsyncIterator[None]:
        """Task runs made in the block belong to the segment of `step` or, if that is done, of the
        first step that is not; without it, the server hears nothing of them."""
        run = self._run  # whose steps before this one are done, and their segments ended
        step = min(max(step, run.manifest.step), run.info.num_steps - 1)
        segment = self._segment(step)
        flow_run = None if segment is None else await segment.flow_run()
        if flow_run is None:
            self._unshown = [min([step, *self._unshown]), max([step, *self._unshown])]
            token = unshown.set(True)
            try:
                yield
            finally:
                unshown.reset(token)
            return
        await self._show_the_gap()
        inside = {"flow_run": flow_run, "task_run_dynamic_keys": {}}
        with self._parent.model_copy(update=inside):
            yield

    def _segment(self, step: int) -> Segment | None:
        """Return a step's segment, begun if need be; None while the server is away."""
        number = step // self._length
        if number not in self._open and not (self._server.away or self._server.forgotten):
            end = min((number + 1) * self._length, self._run.info.num_steps)
            first = max(number * self._length, min(self._run.manifest.step, end - 1))
            self._open[number] = Segment(first, end - 1, self._around, self._tags)
        return self._open.get(number)

    async def _show_the_gap(self) -> None:
        """Tell the server, now that it is back, which steps it was told nothing of."""
        if self._unshown:
            (first, last), self._unshown = self._unshown, []
            with self._parent.model_copy():
                await server_away(segment_name(first, last))

    def end(self, before: int, state: State[Any] | None = None) -> None:
        """End the segments before this step: as Completed, unless a state is given."""
        self._ending = [segment for segment in self._ending if segment.ending()]
        for number in [n for n in self._open if (n + 1) * self._length <= before]:
            segment = self._open.pop(number)
            segment.end(self._completed(segment) if state is None else state)
            self._ending.append(segment)

    def _completed(self, segment: Segment) -> State[Any]:
        took_s = time.monotonic() - segment.since
        return Completed(message=segment_message(self._run, segment.first, segment.last, took_s))

    async def close(self, ended: BaseException | None) -> None:
        state: State[Any] | None = Cancelled(message=str(ended))
        if ended is None:
            state = None
        elif isinstance(ended, Exception) and not isinstance(ended, RunStoppedError):
            state = Failed(message=str(ended))
        self.end(before=self._run.info.num_steps + self._length, state=state)
        # Then there is nobody to tell, or another process drives the flow run and has its segments.
        if not isinstance(ended, ServerError | LeaseLostError):
            await asyncio.gather(*(segment.ended() for segment in self._ending))
            if not (self._server.away or self._server.forgotten):
                await self._show_the_gap()
            rest = self._end_the_rest(state or Completed())
            await best_effort(rest, "the end of the segments is not shown")

    async def _end_the_rest(self, state: State[Any]) -> None:
        """Set the state of segments whose beginning or end the server missed. A segment is made in
        two requests, first the task run that stands for it and then its flow run: a server that
        dies between them knows a task run alone."""
        parent = self._parent.flow_run
        assert parent is not None
        unfinished = {
            "parent_flow_run_id": {"any_": [parent.id]},
            "state": {"type": {"any_": UNFINISHED}},
        }
        for segment in await self._client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(unfinished)
        ):
            await self._client.set_flow_run_state(segment.id, state, force=True)
        of_parent = FlowRunFilter.model_validate({"id": {"any_": [parent.id]}})
        waiting = {"name": {"like_": FLOW}, "state": unfinished["state"]}
        for alone in await self._client.read_task_runs(
            flow_run_filter=of_parent, task_run_filter=TaskRunFilter.model_validate(waiting)
        ):
            await self._client.set_task_run_state(alone.id, state, force=True)

    async def begin(self) -> None:
        """Mark what earlier processes left unfinished, and tag the flow run so that it can be
        found. This process holds the run's lease by now, so nobody else works on the run."""
        await best_effort(self._mark_what_was_left(), STAYS)

    async def _mark_what_was_left(self) -> None:
        """Mark task runs, segments and undeployed flow runs that earlier processes left as Crashed;
        deployments' are left to automations."""
        parent = self._parent.flow_run
        assert isinstance(parent, FlowRun)
        of_run = FlowRunFilter.model_validate({"tags": {"all_": [self._tags[1]]}})
        state = {"type": {"any_": UNFINISHED}}
        crashed: State[Any] = Crashed(message="The process that drove the run ended.")
        await mark_task_runs(self._client, of_run, crashed)
        unfinished = {"tags": {"all_": [self._tags[1]]}, "state": state}
        for flow_run in await self._client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(unfinished)
        ):
            if flow_run.id != parent.id and flow_run.deployment_id is None:
                await self._client.set_flow_run_state(flow_run.id, crashed, force=True)
        own_tags = dict.fromkeys([*parent.tags, *self._tags])
        await self._client.update_flow_run(parent.id, tags=list(own_tags))


@contextlib.contextmanager
def _quiet_threads() -> Iterator[None]:
    """Leave what Prefect logs of the subflows off the terminal and the page: their bars tell it."""

    def is_of_the_run(record: logging.LogRecord) -> bool:
        return not (record.threadName or "").startswith(THREAD)

    logs = logging.getLogger("prefect.flow_runs")
    logs.addFilter(is_of_the_run)
    try:
        yield
    finally:
        logs.removeFilter(is_of_the_run)


@contextlib.asynccontextmanager
async def in_segments(run: Run, server: ServerWatch) -> AsyncIterator[Segments]:
    """Provide the segments of the flow run in which this is called; they end with the block."""
    parent = FlowRunContext.get()
    assert parent is not None, "segments belong to a flow run"
    with _quiet_threads():
        async with get_client() as client:
            segments = Segments(run, client, parent, server)
            try:
                yield segments
            except BaseException as ended:
                await segments.close(ended)
                raise
            await segments.close(None)
