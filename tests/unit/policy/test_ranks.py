"""What rank 0 does about others that fail, hang or end; and what a follower keeps."""

import mmap
import os
import queue
import socket
import time

import pytest
import torch
from torch import nn

from mortal_steps.config.sharding import SHARDED_OPTIMIZERS
from mortal_steps.config.training import FULL
from mortal_steps.errors import ActorStateError, ConfigError, StoreError
from mortal_steps.orchestration.checking.checks import check_trl_options
from mortal_steps.plan.parts import trainer_plan
from mortal_steps.policy import checks
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.ranks import crew, loading, parts
from mortal_steps.policy.ranks.follower import Follower
from mortal_steps.system.frames import Answer, Request, receive_frame, send_frame
from tests.support.policy.rollouts import make_config
from tests.support.refused import refused


class Ended(BaseException):
    """The process would have ended."""


@pytest.fixture
def led(monkeypatch):
    """A crew with one other rank, and that one's ends: for orders, and for what is saved beside."""

    def end(why):
        raise Ended(why)

    monkeypatch.setattr(crew, "_end", end)
    monkeypatch.setattr(crew, "join", lambda *_, **__: None)
    monkeypatch.setattr(crew, "neighbours", [])
    monkeypatch.setattr(crew, "PATIENCE_S", 0.1)
    crew_of_two = crew.Crew(1, 0.2, FULL)
    ours, theirs = socket.socketpair()
    beside, their_beside = socket.socketpair()
    crew_of_two._connections.append(ours)
    crew_of_two._beside.append(beside)
    crew_of_two._answers.append(queue.Queue())
    with ours, theirs, beside, their_beside:
        yield crew_of_two, theirs, their_beside


def test_a_rank_that_hangs_while_it_saves_beside_training_ends_all(led, tmp_path):
    with pytest.raises(Ended, match="lost, or hangs"):
        led[0].save_beside(tmp_path, lambda: None)
    assert receive_frame(led[2]) == tmp_path


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_rank_lost_while_it_saves_beside_training_ends_all(led, tmp_path, when):
    if when == "before":
        led[2].close()
    with pytest.raises(Ended, match="lost, or hangs"):
        led[0].save_beside(tmp_path, led[2].close)


def test_an_error_of_rank_0_that_saves_beside_training_is_its_own(led, tmp_path):
    def fail():
        raise StoreError("as a test has it")

    send_frame(led[2], Answer(number=0))
    with pytest.raises(StoreError, match="as a test has it"):
        led[0].save_beside(tmp_path, fail)


def test_a_rank_lost_before_an_order_ends_all(led):
    led[1].close()
    with pytest.raises(Ended, match="lost, or hangs"):
        led[0].together("train_step", {}, lambda: None)


def test_ranks_that_write_are_waited_for_after_an_error(led):
    def fail():
        raise ActorStateError("as a test has it")

    led[0]._longest_s = 0.5
    began = time.monotonic()
    with pytest.raises(ActorStateError):
        led[0].together("save_final", {}, fail)
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ValueError("rank one does not like it"), "rank 1 failed: ValueError: rank one does not"),
        (RuntimeError("[gloo] Connection closed by peer"), "a rank was lost, or did not come"),
        (None, "a rank was lost, or did not come"),
    ],
)
def test_why_a_rank_did_not_come_is_told(led, answer, told):
    def wait():
        raise RuntimeError("[gloo] Timed out waiting 8000ms for recv operation to complete")

    led[0]._answers[0].put(Answer(number=1, error=answer))
    with pytest.raises(Ended, match=told):
        led[0].together("train_step", {}, wait)


class Copying:
    """A stepper whose copies of the state are objects."""

    def snapshot(self):
        return object()

    def why_no_snapshot(self):
        return None


def test_a_follower_drops_a_snapshot_that_nobody_asked_for():
    follower = Follower()
    follower._stepper = Copying()
    orders = {"snapshot": True, "why_no_snapshot": False}
    for method, has_one in orders.items():
        order = Request(number=1, method=method, payload={"args": (), "kwargs": {}})
        assert follower.take_part(order).error is None
        assert (follower._snapshot is not None) == has_one


def test_memory_is_measured_once_the_others_have_dropped_their_snapshots(led):
    free = []

    class Measuring(Copying):
        def why_no_snapshot(self):
            free.append(receive_frame(led[1]).method)

    led[0]._answers[0].put(Answer(number=1))
    crew.LedParts(led[0], Measuring(), ()).why_no_snapshot()
    assert free == ["why_no_snapshot"] and led[0]._answers[0].empty()


class DealtOut(torch.Tensor):
    """As a `DTensor` on a GPU: what it is gathered into is there only once it is copied."""

    def full_tensor(self):
        return self

    def cpu(self):
        self.waited.append(self.shape)
        return super().cpu()


def test_a_rank_waits_for_each_tensor_that_is_gathered(monkeypatch):
    DealtOut.waited = []
    monkeypatch.setattr(parts, "DTensor", DealtOut)
    monkeypatch.setattr(parts, "rank", lambda: 1)
    assert parts.whole(torch.ones(2, 3).as_subclass(DealtOut)).numel() == 0
    assert DealtOut.waited == [(1,)]


def test_orders_can_be_read_after_a_model_could_not_be_built(monkeypatch):
    def fail(**_):
        raise ValueError("as a test has it")

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(loading, "neighbours", [theirs])
    descriptor = os.memfd_create("model")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    with ours, theirs:
        send_frame(ours, ({}, None))
        socket.send_fds(ours, [b"-"], [descriptor])
        send_frame(ours, "an order")
        with pytest.raises(ValueError, match="as a test has it"):
            loading._mapped(fail)
        assert receive_frame(theirs) == "an order"
    os.close(descriptor)


def test_a_parameter_without_elements_has_a_place_of_its_own():
    model = nn.ParameterDict({"empty": torch.empty(0), "full": torch.ones(3)})
    places, descriptor = loading._share(model)
    os.close(descriptor)
    assert places["empty"].offset != places["full"].offset


@pytest.mark.parametrize(
    "name", ["rmsprop_bnb_8bit", "adamw_torch_8bit", "adamw_torch_4bit", "adamw_torch_xla"]
)
def test_an_optimizer_whose_state_cannot_be_dealt_out_is_refused(name):
    config = make_config(ranks=2, sharding=FULL, trl={"optim": name})
    with pytest.raises(ConfigError, match=f"does not go with training.trl.optim = '{name}'"):
        checks.check_ranks(trainer_plan(config), GRPO())


@pytest.mark.parametrize("name", SHARDED_OPTIMIZERS)
def test_other_optimizers_can_be_dealt_out(name):
    checks.check_ranks(
        trainer_plan(make_config(ranks=2, sharding=FULL, trl={"optim": name})), GRPO()
    )


def test_a_compiled_model_is_not_dealt_out():
    config = make_config(ranks=2, sharding=FULL, trl={"torch_compile": True})
    with refused(ConfigError, "training.trl.torch_compile"):
        checks.check_ranks(trainer_plan(config), GRPO())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"trl": {"fsdp": True}}, r"training\.trl\.fsdp cannot be set"),
        ({"trl": {"deepspeed": "zero.json"}}, r"training\.trl\.deepspeed cannot be set"),
        ({"trl": {"lr_scheduler_type": "greedy"}}, r"lr_scheduler_type = 'greedy'"),
        ({"sharding": FULL, "trl": {"optim": "adafactor"}}, "optim = 'adafactor'"),
        ({"sharding": FULL, "use_lora": True, "lora": {"merge_final": True}}, "merge_final"),
        ({"sharding": FULL, "trl": {"torch_compile": True}}, "torch_compile"),
    ],
)
def test_what_is_refused_by_its_name_is_refused_without_trl(options, told):
    with pytest.raises(ConfigError, match=told):
        config = make_config(ranks=2, **options)
        check_trl_options(config.algorithm.type, config.model, config.training)


def test_a_model_is_dealt_out_on_linux_alone(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(ConfigError, match="needs Linux"):
        checks.check_ranks(trainer_plan(make_config(ranks=2, sharding=FULL)), GRPO())
