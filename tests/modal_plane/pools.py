"""Pools: how many containers a function has, what they work on, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time

from grpclib import GRPCError
from modal_proto import api_pb2 as pb

from .launcher import Launcher
from .processes import kill_everything, process_ended
from .types import Cluster, Container, Function, Input, Result, World

MAX_LOST = 8
"""How often an input that is lost with its container is given to another."""


def live_containers(function: Function) -> list[Container]:
    """Containers that take inputs, or will."""
    return [one for one in function.containers.values() if not one.ending]


class Pools:
    """Starts and ends containers, and decides what becomes of inputs."""

    def __init__(self, world: World, launcher: Launcher) -> None:
        self.world = world
        self.launcher = launcher

    # ---- inputs

    def enqueue(self, one: Input) -> None:
        """Give the input to the next container that is free."""
        one.state = "queued"
        function = one.call.function
        function.queue.append(one)
        function.signal.notify()
        self.scale(function)

    def finish(
        self, one: Input, result: pb.GenericResult, output: pb.FunctionPutOutputsItem | None = None
    ) -> None:
        """Record the result, or try a failed input again if its function says so.

        Args:
            output: What the container said, if the result is its own.
        """
        self._release(one)
        if self._retries(one, result):
            return
        call = one.call
        one.state = "done"
        call.num_outputs += 1
        item = pb.FunctionGetOutputsItem(
            result=result,
            idx=one.index,
            input_id=one.id,
            retry_count=one.retry,
            data_format=output.data_format if output else pb.DATA_FORMAT_UNSPECIFIED,
            input_started_at=output.input_started_at if output else 0.0,
            output_created_at=output.output_created_at if output else 0.0,
        )
        call.outputs.append((call.num_outputs, item))
        call.signal.notify()
        self.world.events.add(
            "input_finished",
            input=one.id,
            call=call.id,
            status=Result.GenericStatus.Name(result.status).removeprefix("GENERIC_STATUS_"),
        )

    def _retries(self, one: Input, result: pb.GenericResult) -> bool:
        """Retries of `.spawn` are the server's, those of `.remote` the client's."""
        policy = one.call.function.definition.retry_policy
        if (
            result.status not in (Result.GENERIC_STATUS_FAILURE, Result.GENERIC_STATUS_TIMEOUT)
            or one.call.invocation == pb.FUNCTION_CALL_INVOCATION_TYPE_SYNC
            or one.retry >= policy.retries
        ):
            return False
        delay_ms = policy.initial_delay_ms * (policy.backoff_coefficient or 1) ** one.retry
        one.retry += 1
        one.state = "waiting"
        self.world.events.add("input_retried", input=one.id, retry=one.retry, by="server")
        delay_s = min(delay_ms, policy.max_delay_ms or 60_000) / 1000
        asyncio.get_running_loop().call_later(delay_s, self._enqueue_waiting, one)
        return True

    def _enqueue_waiting(self, one: Input) -> None:
        if one.state == "waiting":
            self.enqueue(one)

    def _release(self, one: Input) -> None:
        if one.timer:
            one.timer.cancel()
            one.timer = None
        if one.container:
            one.container.inputs.pop(one.id, None)
            one.container.idle_since = time.time()
            one.container = None

    def _lose(self, one: Input, why: str) -> None:
        """The input's container is gone: start the same input in another."""
        one.lost += 1
        self._release(one)
        if one.lost > MAX_LOST:
            failure = Result(status=Result.GENERIC_STATUS_INTERNAL_FAILURE, exception=why)
            self.finish(one, failure)
        else:
            self.world.events.add("input_rescheduled", input=one.id, call=one.call.id, why=why)
            self.enqueue(one)

    # ---- containers

    def scale(self, function: Function) -> None:
        """Start the containers that the function's queue and settings ask for."""
        if self.world.apps[function.app_id].is_stopped:
            return
        settings = function.definition.autoscaler_settings
        live = live_containers(function)
        running = sum(len(one.inputs) for one in live)
        wanted = math.ceil((running + len(function.queue)) / inputs_per_container(function))
        if wanted:
            wanted += settings.buffer_containers
        wanted = max(wanted, settings.min_containers)
        limit = settings.max_containers or function.definition.concurrency_limit
        limit = limit or self.world.options.max_containers
        ending = len(function.containers) - len(live)
        size = function.definition._experimental_group_size
        room = min(wanted * max(size, 1), limit - ending) - len(live)
        for _ in range(room // max(size, 1)):
            cluster = self._new_cluster(size) if size else None
            for rank in range(max(size, 1)):
                self._begin(function, cluster, rank)

    def _new_cluster(self, size: int) -> Cluster:
        cluster_id = self.world.new_id("cu")
        number = int(cluster_id.partition("-")[2])
        addresses = [f"127.{os.getpid() % 251 + 1}.{number}.{rank + 1}" for rank in range(size)]
        return Cluster(id=cluster_id, addresses=addresses)

    def _begin(self, function: Function, cluster: Cluster | None, rank: int) -> None:
        container_id = self.world.new_id("ta")
        container = Container(
            id=container_id,
            function=function,
            directory=self.world.state / "tasks" / container_id,
            cluster=cluster,
            rank=rank,
        )
        if cluster:
            cluster.containers.append(container)
        self.world.containers[container_id] = function.containers[container_id] = container
        self.world.start(self._live(container))

    async def _live(self, container: Container) -> None:
        """A container's life: start, its output until it ends, what follows from the end."""
        function = container.function
        try:
            process = container.process = await self.launcher.start(container)
        except (OSError, GRPCError) as error:
            container.result = _failure(f"container could not start: {error}")
        else:
            self.world.events.add(
                "container_started",
                task=container.id,
                function=function.name,
                function_id=function.id,
                gpu=function.gpu,
                python=container.python,
                pid=process.pid,
                rank=container.rank,
            )
            logging = asyncio.create_task(self._log(container))
            await process_ended(process)
            # What it left behind may hold its output open.
            kill_everything(container.process, container.directory)
            await logging
            await process.wait()
        self._ended(container)

    async def _log(self, container: Container) -> None:
        app = self.world.apps[container.function.app_id]
        assert container.process is not None
        assert container.process.stdout is not None
        with (container.directory / "log.txt").open("wb") as log:
            while line := await container.process.stdout.readline():
                log.write(line)
                log.flush()
                text = line.decode(errors="replace")
                app.logs.append((container.id, container.function.id, text))
                app.log_signal.notify()

    def _ended(self, container: Container) -> None:
        function, why = container.function, container.ending
        code = container.process.returncode if container.process else None
        function.containers.pop(container.id, None)
        self.world.events.add(
            "container_ended",
            task=container.id,
            function=function.name,
            function_id=function.id,
            gpu=function.gpu,
            seconds=time.time() - container.created_at,
            exit_code=code,
            why=why or "crashed",
        )
        if container.cluster:
            container.drain("its cluster ended")
        for one in list(container.inputs.values()):
            self._lose(one, f"Container {container.id} exited with code {code} under the input")
        if container.result is not None:
            self._fail_start(function, container.result)
        elif not container.is_ready and not why:
            self._fail_start(function, _failure(f"Container exited with code {code} at start-up"))
        self.scale(function)

    def _fail_start(self, function: Function, result: pb.GenericResult) -> None:
        function.failed_starts += 1
        if function.failed_starts >= self.world.options.startup_failures:
            function.failed_starts = 0
            self.fail_queue(function, result)

    def fail_queue(self, function: Function, result: pb.GenericResult) -> None:
        """Finish every input that waits for a container."""
        waiting, function.queue = function.queue, type(function.queue)()
        for one in waiting:
            self.finish(one, result)

    async def preempt(self, container: Container, why: str = "preempted") -> None:
        """SIGINT, and SIGKILL after the grace period, as when Modal takes a container away."""
        container.drain(why)
        process = container.process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), self.world.options.preemption_grace_s)
        kill_everything(container.process, container.directory)

    def kill(self, container: Container) -> None:
        """End it without a word, as when its machine fails."""
        container.drain("killed")
        kill_everything(container.process, container.directory)

    # ---- time limits of inputs

    def start_timer(self, one: Input) -> None:
        """Let the input fail when it takes longer than its function allows."""
        if limit := one.call.function.definition.timeout_secs:
            loop = asyncio.get_running_loop()
            one.timer = loop.call_later(limit, self._time_out, one, limit)

    def _time_out(self, one: Input, limit: int) -> None:
        """Fail the input and have it cancelled, then SIGINT, then SIGKILL, as Modal does."""
        container = one.container
        if one.state != "running" or container is None:
            return
        self.world.events.add("input_timed_out", input=one.id, task=container.id)
        message = f"Task's current input {one.id} hit its timeout of {limit}s"
        self.finish(one, Result(status=Result.GENERIC_STATUS_TIMEOUT, exception=message))
        container.overdue.add(one.id)
        container.cancelled.append(one.id)
        container.cancel_signal.notify()
        self.world.start(self._escalate(container, one.id))

    async def _escalate(self, container: Container, input_id: str) -> None:
        for kind in (signal.SIGINT, signal.SIGKILL):
            until = time.time() + self.world.options.timeout_grace_s
            while time.time() < until:
                if input_id not in container.overdue or not container.is_running:
                    return
                await asyncio.sleep(0.05)
            container.drain("timeout")
            self.world.events.add("timeout_escalated", task=container.id, signal=kind.name)
            if container.is_running and container.process is not None:
                os.kill(container.process.pid, kind)


def inputs_per_container(function: Function) -> int:
    """How many inputs a container works on at once."""
    definition = function.definition
    concurrent = definition.target_concurrent_inputs or definition.max_concurrent_inputs
    return max(definition.batch_max_size, concurrent, 1)


def _failure(message: str) -> pb.GenericResult:
    return Result(status=Result.GENERIC_STATUS_FAILURE, exception=message)
