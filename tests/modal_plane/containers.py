"""What containers ask for: inputs, heartbeats, a place for their outputs."""

from __future__ import annotations

import time

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .pools import Pools
from .types import Caller, Container, Input, Result, World

POLL_S = 10.0
"""How long a container waits for an input before it asks again."""
HEARTBEAT_S = 12.0
"""How long a heartbeat waits for a cancellation."""


class Containers:
    """RPCs of containers, and those of clients about them."""

    def __init__(self, world: World, pools: Pools) -> None:
        self.world = world
        self.pools = pools

    async def ContainerHello(self, request: Empty, caller: Caller) -> Empty:
        return Empty()

    async def ContainerHeartbeat(
        self, request: pb.ContainerHeartbeatRequest, caller: Caller
    ) -> pb.ContainerHeartbeatResponse:
        container = _container(caller)
        if not container.cancelled:
            await container.cancel_signal.wait(time.time() + HEARTBEAT_S)
        if not container.cancelled:
            return pb.ContainerHeartbeatResponse()
        cancelled, container.cancelled = container.cancelled, []
        return pb.ContainerHeartbeatResponse(
            cancel_input_event=pb.CancelInputEvent(input_ids=cancelled)
        )

    async def FunctionGetDynamicConcurrency(
        self, request: pb.FunctionGetDynamicConcurrencyRequest, caller: Caller
    ) -> pb.FunctionGetDynamicConcurrencyResponse:
        concurrency = request.target_concurrency or request.max_concurrency
        return pb.FunctionGetDynamicConcurrencyResponse(concurrency=concurrency)

    async def FunctionGetInputs(
        self, request: pb.FunctionGetInputsRequest, caller: Caller
    ) -> pb.FunctionGetInputsResponse:
        """The next input, or the word to end."""
        container = _container(caller)
        self._note_ready(container)
        until = time.time() + POLL_S
        while time.time() < until:
            if container.ending or container.id not in container.function.containers:
                end = pb.FunctionGetInputsItem(kill_switch=True)
                return pb.FunctionGetInputsResponse(inputs=[end])
            if container.broadcast:
                return pb.FunctionGetInputsResponse(inputs=[container.broadcast.popleft()])
            if container.function.queue and not container.rank:
                return pb.FunctionGetInputsResponse(inputs=[self._take(container)])
            await container.function.signal.wait(until)
        return pb.FunctionGetInputsResponse()

    def _note_ready(self, container: Container) -> None:
        if not container.is_ready:
            container.is_ready = True
            container.function.failed_starts = 0
            container.idle_since = time.time()
            self.world.events.add(
                "container_ready",
                task=container.id,
                function=container.function.name,
                boot_s=time.time() - container.created_at,
            )

    def _take(self, container: Container) -> pb.FunctionGetInputsItem:
        one: Input = container.function.queue.popleft()
        one.state, one.container = "running", container
        container.inputs[one.id] = one
        self.pools.start_timer(one)
        self.world.events.add(
            "input_started", input=one.id, call=one.call.id, task=container.id, retry=one.retry
        )
        item = pb.FunctionGetInputsItem(
            input_id=one.id,
            input=one.body,
            function_call_id=one.call.id,
            retry_count=one.retry,
            function_map_idx=one.index,
            function_call_invocation_type=one.call.invocation,
        )
        for other in container.cluster.containers[1:] if container.cluster else ():
            other.broadcast.append(item)
        container.function.signal.notify()
        return item

    async def TaskClusterHello(
        self, request: pb.TaskClusterHelloRequest, caller: Caller
    ) -> pb.TaskClusterHelloResponse:
        """Tell a container of its cluster, once all of it are there."""
        container = _container(caller)
        cluster = container.cluster
        if cluster is None:
            raise GRPCError(Status.FAILED_PRECONDITION, "this container is in no cluster")
        cluster.num_present += 1
        cluster.signal.notify()
        while cluster.num_present < len(cluster.addresses):
            await cluster.signal.wait(time.time() + POLL_S)
        return pb.TaskClusterHelloResponse(
            cluster_id=cluster.id,
            cluster_rank=container.rank,
            container_ips=cluster.addresses,
            container_ipv4_ips=cluster.addresses,
        )

    async def FunctionPutOutputs(
        self, request: pb.FunctionPutOutputsRequest, caller: Caller
    ) -> Empty:
        """Outputs of inputs that were given away or finished meanwhile are dropped."""
        container = _container(caller)
        for output in request.outputs:
            container.overdue.discard(output.input_id)
            one = self.world.inputs[output.input_id]
            if one.container is container and output.retry_count == one.retry:
                result = output.result
                if result.status == Result.GENERIC_STATUS_TERMINATED and not result.exception:
                    result.exception = "Input was cancelled by user"
                self.pools.finish(one, result, output)
        return Empty()

    async def TaskResult(self, request: pb.TaskResultRequest, caller: Caller) -> Empty:
        """The container could not start, and says why."""
        _container(caller).result = request.result
        return Empty()

    async def TaskList(self, request: pb.TaskListRequest, caller: Caller) -> pb.TaskListResponse:
        return pb.TaskListResponse(
            tasks=[
                pb.TaskStats(
                    task_id=one.id,
                    app_id=one.function.app_id,
                    app_description=self.world.apps[one.function.app_id].name,
                    started_at=one.created_at,
                    enqueued_at=one.created_at,
                )
                for one in self.world.open_containers()
                if request.app_id in ("", one.function.app_id)
            ]
        )

    async def ContainerStop(
        self, request: pb.ContainerStopRequest, caller: Caller
    ) -> pb.ContainerStopResponse:
        container = self.world.containers.get(request.task_id)
        if container is None:
            raise GRPCError(Status.NOT_FOUND, f"Container {request.task_id!r} not found")
        if request.graceful:
            container.drain("stopped")
        else:
            self.world.start(self.pools.preempt(container, "stopped"))
        return pb.ContainerStopResponse()


def _container(caller: Caller) -> Container:
    if caller.container is None:
        raise GRPCError(Status.FAILED_PRECONDITION, "this RPC is for containers")
    return caller.container
