"""Calls of a deployed app, by the real client and the real container entrypoint."""

import os

import grpclib.client
import modal
import pytest
from modal.exception import FunctionTimeoutError, NotFoundError, RemoteError
from modal_proto import api_pb2 as pb
from modal_proto.api_grpc import ModalClientStub

from .lint import lint
from .sample_app import SampleError

MIB = 1 << 20


def function(name):
    return modal.Function.from_name("sample", name)


def counter(name, **options):
    return modal.Cls.from_name("sample", "Counter").with_options(**options)(name=name)


def test_a_call_returns_what_the_function_does(plane):
    assert function("double").remote(21) == 42
    assert list(function("double").map([1, 2, 3])) == [2, 4, 6]


def test_a_spawned_call_is_attached_to_by_its_id(plane):
    call = counter("spawned").add.spawn(1, seconds=0.5)
    again = modal.FunctionCall.from_id(call.object_id)
    with pytest.raises(TimeoutError):
        again.get(timeout=0)
    _, count = again.get(timeout=30)
    assert count == 1
    assert again.get(timeout=0)[1] == 1  # the result stays
    spawned = plane.events("call_spawned", call=call.object_id)
    assert [(e["function"], e["method"]) for e in spawned] == [("Counter.*", "add")]


def test_a_container_calls_another(plane):
    call = function("double_elsewhere").spawn(21)
    assert call.get(timeout=30) == 42
    task = plane.events("input_started", call=call.object_id)[0]["task"]
    assert [e["function"] for e in plane.events("call_spawned", by=task)] == ["double"]


def test_each_container_of_a_cluster_gets_each_input(plane):
    met = function("meet").remote("first")
    assert len(set(met)) == 2
    assert function("meet").remote("second") == met
    started = plane.events("container_started", function="meet")
    assert sorted((each["rank"], each["task"]) for each in started) == list(enumerate(met))


def test_a_cluster_that_lost_a_container_is_followed_by_another(plane):
    before = function("meet").remote("third")
    plane.kill(before[1])
    after = function("meet").remote("fourth")
    assert len({*before, *after}) == 4
    assert len(plane.events("container_ended", function="meet")) >= 2


def test_an_unknown_call_is_not_found(plane):
    with pytest.raises(NotFoundError):
        modal.FunctionCall.from_id("fc-999999").get(timeout=1)


def test_each_set_of_parameters_is_one_container(plane):
    calls = [counter("left").add.spawn(1) for _ in range(3)] + [counter("right").add.spawn(10)]
    results = [call.get(timeout=30) for call in calls]
    left, right = results[:3], results[3]
    assert sorted(count for _, count in left) == [1, 2, 3]
    assert right[1] == 10
    assert len({task for task, _ in left}) == 1
    assert right[0] != left[0][0]


def test_options_make_a_pool_of_their_own(plane):
    task, count = counter("gpu", gpu="A100-80GB:2").add.remote(1)
    other, _ = counter("gpu").add.remote(1)
    assert count == 1
    assert task != other
    gpus = {e["task"]: e["gpu"] for e in plane.events("container_started")}
    assert gpus[task] == "A100-80GB:2"
    assert gpus[other] == "T4"


def test_the_users_exception_comes_back_after_the_retries(plane):
    call = function("fail").spawn("spawned")
    with pytest.raises(SampleError, match="spawned"):
        call.get(timeout=30)
    (spawned,) = plane.events("input_finished", call=call.object_id)
    assert len(plane.events("input_started", call=call.object_id)) == 3
    assert len(plane.events("input_retried", input=spawned["input"], by="server")) == 2


def test_large_arguments_and_results_go_as_blobs(plane):
    data = os.urandom(3 * MIB)
    assert function("echo").remote(data) == data
    assert plane.state()["rpcs"]["BlobGet"] >= 2


def test_a_secret_reaches_the_container(plane):
    assert function("reveal").remote("SAMPLE") == "known"


def test_a_running_call_is_cancelled_with_its_container(plane):
    call = counter("cancelled").add.spawn(1, seconds=60)
    task = plane.wait_for("input_started", call=call.object_id)["task"]
    call.cancel(terminate_containers=True)
    with pytest.raises(RemoteError):
        call.get(timeout=30)
    assert plane.wait_for("container_ended", task=task)["why"] == "cancelled"


def test_a_waiting_call_is_cancelled(plane):
    busy = counter("busy").add.spawn(1, seconds=1)
    waiting = counter("busy").add.spawn(1)
    waiting.cancel()
    with pytest.raises(RemoteError):
        waiting.get(timeout=30)
    assert busy.get(timeout=30)[1] == 1


def test_a_timeout_ends_the_input_and_spares_the_container(plane):
    call = function("hang").spawn("politely")
    with pytest.raises(FunctionTimeoutError):
        call.get(timeout=30)
    assert not plane.events("timeout_escalated")


def test_a_container_that_ignores_its_timeout_is_killed(plane):
    call = function("hang").spawn("stubborn")
    task = plane.wait_for("input_started", call=call.object_id)["task"]
    assert plane.wait_for("container_ended", task=task)["exit_code"] == -9
    signals = [e["signal"] for e in plane.events("timeout_escalated", task=task)]
    assert signals == ["SIGINT", "SIGKILL"]


def test_an_idle_container_goes(plane):
    task, _ = counter("idle").add.remote(1)
    ended = plane.wait_for("container_ended", task=task)
    assert (ended["why"], ended["exit_code"]) == ("idle", 0)
    assert ended["seconds"] > 2
    assert task not in {one["id"] for one in plane.tasks()}


def test_how_long_a_container_stays_idle_is_changed_while_it_runs(plane):
    worker = modal.Cls.from_name("sample", "Counter").with_options(scaledown_window=600)
    worker = worker(name="patient")
    task, _ = worker.add.remote(1)
    assert worker.add.autoscaler.settings().scaledown_window == 600
    worker.add.autoscaler.update(scaledown_window=2)
    assert plane.wait_for("container_ended", task=task)["why"] == "idle"


def test_what_is_not_there_is_not_found(plane):
    with pytest.raises(NotFoundError, match="'absent' app"):
        modal.Function.from_name("absent", "double").remote(1)
    with pytest.raises(NotFoundError, match="absent"):
        function("absent").remote(1)
    with pytest.raises(NotFoundError, match=r"is a modal\.Cls"):
        function("Counter").remote(1)


def test_a_dict_key_is_taken_once(plane):
    with modal.Dict.ephemeral() as lease:
        assert lease.put("run", "first", skip_if_exists=True)
        assert not lease.put("run", "second", skip_if_exists=True)
        assert lease["run"] == "first"
        assert lease.pop("run") == "first"
        assert lease.put("run", "third", skip_if_exists=True)
        assert dict(lease.items()) == {"run": "third"}


async def test_a_request_that_is_sent_again_is_done_once(plane):
    host, port = plane.env["MODAL_SERVER_URL"].removeprefix("http://").split(":")
    token = {
        "x-modal-token-id": plane.env["MODAL_TOKEN_ID"],
        "x-modal-token-secret": plane.env["MODAL_TOKEN_SECRET"],
    }
    async with grpclib.client.Channel(host, int(port)) as channel:
        stub = ModalClientStub(channel)
        create = pb.DictGetOrCreateRequest(
            object_creation_type=pb.OBJECT_CREATION_TYPE_ANONYMOUS_OWNED_BY_APP
        )
        created = await stub.DictGetOrCreate(create, metadata=token)
        put = pb.DictUpdateRequest(dict_id=created.dict_id, if_not_exists=True)
        put.updates.add(key=b"key", value=b"value")
        answers = [
            await stub.DictUpdate(put, metadata={**token, "x-idempotency-key": key})
            for key in ("first", "first", "second")
        ]
    assert [answer.created for answer in answers] == [True, True, False]


def test_lint_finds_nothing_and_every_rpc_was_emulated(plane):
    assert lint(plane.state()) == []
