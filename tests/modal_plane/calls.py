"""Calls: making them, their outputs, attaching to them, cancelling them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal._utils.jwt_utils import DecodedJwt
from modal_proto import api_pb2 as pb

from .functions import Functions
from .pools import Pools
from .types import Call, Caller, Input, Result, World

OUTPUTS_AT_ONCE = 49
"""What the client asks for at most."""
CANCELLED = Result(status=Result.GENERIC_STATUS_TERMINATED, exception="Input was cancelled by user")


class Calls:
    """RPCs of calls."""

    def __init__(self, world: World, functions: Functions, pools: Pools) -> None:
        self.world = world
        self.functions = functions
        self.pools = pools

    def _call(self, call_id: str) -> Call:
        if call_id not in self.world.calls:
            raise GRPCError(Status.NOT_FOUND, f"Function call {call_id!r} not found")
        return self.world.calls[call_id]

    async def FunctionMap(
        self, request: pb.FunctionMapRequest, caller: Caller
    ) -> pb.FunctionMapResponse:
        """Start a call; its inputs come with it or by FunctionPutInputs."""
        function = self.functions.get(request.function_id)
        if self.world.apps[function.app_id].is_stopped:
            raise GRPCError(Status.NOT_FOUND, f"App {function.app_id} is stopped")
        call = Call(
            id=self.world.new_id("fc"),
            function=function,
            invocation=request.function_call_invocation_type,
            spawned_by=caller.name,
        )
        self.world.calls[call.id] = call
        items = self._add_inputs(call, request.pipelined_inputs)
        self.world.events.add(
            "call_spawned",
            call=call.id,
            function=function.name,
            function_id=function.id,
            method=next((i.input.method_name for i in request.pipelined_inputs), ""),
            by=caller.name,
        )
        return pb.FunctionMapResponse(
            function_call_id=call.id,
            pipelined_inputs=items,
            retry_policy=function.definition.retry_policy,
            function_call_jwt=DecodedJwt.encode_without_signature(
                {"function_id": function.id, "function_call_id": call.id}
            ),
            sync_client_retries_enabled=True,
            max_inputs_outstanding=1000,
        )

    def _add_inputs(
        self, call: Call, items: Iterable[pb.FunctionPutInputsItem]
    ) -> list[pb.FunctionPutInputsResponseItem]:
        added = []
        for item in items:
            one = Input(id=self.world.new_id("in"), call=call, index=item.idx, body=item.input)
            call.inputs[item.idx] = self.world.inputs[one.id] = one
            self.pools.enqueue(one)
            added.append(
                pb.FunctionPutInputsResponseItem(idx=item.idx, input_id=one.id, input_jwt=one.jwt)
            )
        return added

    async def FunctionPutInputs(
        self, request: pb.FunctionPutInputsRequest, caller: Caller
    ) -> pb.FunctionPutInputsResponse:
        call = self._call(request.function_call_id)
        return pb.FunctionPutInputsResponse(inputs=self._add_inputs(call, request.inputs))

    async def FunctionFinishInputs(
        self, request: pb.FunctionFinishInputsRequest, caller: Caller
    ) -> Empty:
        self._call(request.function_call_id)
        return Empty()

    async def FunctionRetryInputs(
        self, request: pb.FunctionRetryInputsRequest, caller: Caller
    ) -> pb.FunctionRetryInputsResponse:
        """The retries of a `.remote` that failed, which are the client's."""
        call = self._call(_payload(request.function_call_jwt)["function_call_id"])
        jwts = []
        for item in request.inputs:
            one = self.world.inputs[_payload(item.input_jwt)["input_id"]]
            call.outputs = [(n, o) for n, o in call.outputs if o.idx != one.index]
            one.retry = item.retry_count or one.retry + 1
            self.world.events.add("input_retried", input=one.id, retry=one.retry, by=caller.name)
            self.pools.enqueue(one)
            jwts.append(one.jwt)
        return pb.FunctionRetryInputsResponse(input_jwts=jwts)

    async def FunctionGetOutputs(
        self, request: pb.FunctionGetOutputsRequest, caller: Caller
    ) -> pb.FunctionGetOutputsResponse:
        """Outputs after `last_entry_id`, or of a range of indices, waiting for one to come."""
        call = self._call(request.function_call_id)
        self._note_attached(call, caller)
        after = int((request.last_entry_id or "0-0").split("-")[0])
        until = time.time() + request.timeout
        while True:
            if request.HasField("start_idx"):
                end = request.end_idx if request.HasField("end_idx") else 1 << 30
                found = [(n, o) for n, o in call.outputs if request.start_idx <= o.idx <= end]
            else:
                found = [(n, o) for n, o in call.outputs if n > after]
                found = found[: request.max_values or OUTPUTS_AT_ONCE]
            if found or time.time() >= until:
                break
            await call.signal.wait(until)
        return pb.FunctionGetOutputsResponse(
            outputs=[output for _, output in found],
            idxs=[output.idx for _, output in found],
            last_entry_id=f"{max([n for n, _ in found], default=after)}-0",
            num_unfinished_inputs=call.num_unfinished,
        )

    def _note_attached(self, call: Call, caller: Caller) -> None:
        if caller.name != call.spawned_by and caller.name not in call.attached:
            call.attached.add(caller.name)
            self.world.events.add(
                "call_attached", call=call.id, function=call.function.name, by=caller.name
            )

    async def FunctionCallFromId(
        self, request: pb.FunctionCallFromIdRequest, caller: Caller
    ) -> pb.FunctionCallFromIdResponse:
        call = self._call(request.function_call_id)
        return pb.FunctionCallFromIdResponse(
            function_call_id=call.id,
            num_inputs=len(call.inputs),
            metadata=pb.FunctionCallHandleMetadata(
                app_id=call.function.app_id, function_id=call.function.id
            ),
        )

    async def FunctionCallCancel(
        self, request: pb.FunctionCallCancelRequest, caller: Caller
    ) -> Empty:
        call = self._call(request.function_call_id)
        self.world.events.add("call_cancelled", call=call.id, by=caller.name)
        for one in call.inputs.values():
            self._cancel(one, terminate=request.terminate_containers)
        return Empty()

    def _cancel(self, one: Input, *, terminate: bool) -> None:
        container = one.container
        if one.state == "queued":
            one.call.function.queue.remove(one)
            self.pools.finish(one, CANCELLED)
        elif one.state == "waiting":
            self.pools.finish(one, CANCELLED)
        elif one.state == "running" and container is not None:
            if terminate:
                self.pools.finish(one, CANCELLED)
                self.world.start(self.pools.preempt(container, "cancelled"))
            else:
                container.cancelled.append(one.id)
                container.cancel_signal.notify()


def _payload(jwt: str) -> dict[str, str]:
    payload: dict[str, str] = DecodedJwt.decode_without_verification(jwt).payload
    return payload
