"""Workers on a Ray cluster: what of a configuration is refused, and what is known beforehand."""

import asyncio
import errno
import os
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.errors import ComputeError, ConfigError, LeaseLostError
from mortal_steps.orchestration.driver import open_session
from mortal_steps.places.base import place_of
from mortal_steps.places.ray import compute
from mortal_steps.places.ray.node import Node, Orders, this_mortal
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.runs.run import find_run
from mortal_steps.runs.waits import LEFT_AFTER_S, note_wait, waits
from mortal_steps.store import RunStore
from tests.support.begun_runs import make_run

RAY = {"compute": {"backend": "ray"}}
SPEC = WorkerSpec(factory="nowhere:Nobody", kwargs={})


@pytest.fixture
def orders(tmp_path):
    """Of the first start of an actor, whose number is there."""
    (tmp_path / "cluster/actor-0").mkdir(parents=True)
    (tmp_path / "cluster/actor-0/1").write_text("nonce")
    return Orders(
        worker="actor-0",
        number=1,
        nonce="nonce",
        mortal=this_mortal(),
        run_dir=tmp_path,
        working_dir=tmp_path,
        spec=SPEC,
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"compute": {"backend": "ray", "mode": "single_node"}}, "gives each GPUs of its own"),
        ({**RAY, "rollout": {"weight_sync": "direct"}}, "'ray' runs them on others"),
        ({**RAY, "rollout": {"sleep_while_training": True}}, "'ray' runs them on others"),
        ({"compute": {"ray": {"addres": "auto"}}}, "did you mean compute.ray.address"),
        ({"compute": {"ray": {"wait_s": 0}}}, "wait_s"),
        ({"compute": {"ray": {"address": "10.0.0.1"}}}, "'10.0.0.1' is not the address"),
        ({"compute": {"ray": {"address": "ray://head:10001"}}}, "write it as host:port"),
    ],
)
def test_what_workers_on_other_machines_cannot_have_is_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_config(values)


def test_an_interpreter_without_ray_is_named():
    config = parse_config({"compute": {"backend": "ray", "ray": {"python": "/nowhere/python"}}})
    with pytest.raises(ConfigError, match=r"/nowhere/python has no Ray; install it .*ray>=2"):
        place_of(Plan(config).place).check_interpreters(["actor"])


def test_an_actor_takes_a_gpu_for_each_rank_and_an_engine_those_that_it_computes_on():
    values = {
        "training": {"ranks": 4},
        "rollout": {"num_rollout_workers": 2, "engine_options": {"tensor_parallel_size": 2}},
        "compute": {"backend": "ray", "ray": {"actor": "H100", "rollout": "T4"}},
    }
    placement = place_of(Plan(parse_config(values)).place).placement()
    assert [gpu.name for gpu in placement.trainers] == ["H100"] * 4
    assert [len(gpus) for gpus in placement.engines] == [2, 2]
    assert not placement.shares
    assert all(gpu.bfloat16 and gpu.memory > 70 * 2**30 for gpu in placement.trainers)
    assert not any(gpu.bfloat16 for gpus in placement.engines for gpu in gpus)


@pytest.mark.parametrize(("kind", "gib"), [("A100", 0), ("A100-40G", 39), ("A100-80G", 79)])
def test_a_run_is_not_refused_for_the_memory_of_a_gpu_of_which_ray_does_not_name_the_size(
    kind, gib
):
    values = {"compute": {"backend": "ray", "ray": {"actor": kind}}}
    (gpu,) = place_of(Plan(parse_config(values)).place).placement().trainers
    assert gpu.memory // 2**30 == gib


def test_workers_without_a_kind_of_gpu_compute_on_cpus():
    assert place_of(Plan(parse_config(RAY)).place).placement().gpus == ()


def test_what_a_worker_waits_for_is_told_while_it_does(tmp_path, monkeypatch):
    store = RunStore(tmp_path)
    note_wait(store, "actor-0", None)
    note_wait(store, "rollout-0", "no node has a free H100")
    assert waits(store) == ["rollout-0: no node has a free H100"]
    late = time.time() + LEFT_AFTER_S + 1
    monkeypatch.setattr(time, "time", lambda: late)
    assert waits(store) == []
    note_wait(store, "rollout-0", None)
    assert not list(tmp_path.glob("cluster/*/*"))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"mortal": "0.0.1 (abc)"}, "the flow's machine 0.0.1 (abc): install the same"),
        ({"nonce": "other"}, "runs_dir must lie on a file system that all nodes share"),
        ({"working_dir": Path("/nowhere")}, "no folder /nowhere, in which the run began"),
    ],
)
def test_a_node_with_other_code_or_other_files_is_named(changed, problem, orders):
    assert orders.problem_here() is None
    assert problem in replace(orders, **changed).problem_here()


async def test_a_node_that_was_given_up_begins_no_call(orders):
    (orders.run_dir / "cluster/actor-0/2").write_text("of the next start")
    answer = await Node(orders).call("train_step", {}, "train_step/3/0")
    assert isinstance(answer.error, LeaseLostError)


async def test_a_node_that_was_given_up_ends_though_its_file_system_had_failed(orders, monkeypatch):
    looks = iter([OSError(errno.ESTALE, "Stale file handle"), [(2, orders.run_dir)]])

    def numbered(*_):
        look = next(looks)
        if isinstance(look, OSError):
            raise look
        return look

    ended = asyncio.Event()
    node = Node(orders)
    monkeypatch.setattr(RunStore, "numbered", numbered)
    monkeypatch.setattr("mortal_steps.places.ray.node.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(os, "_exit", lambda _: ended.set() or asyncio.current_task().cancel())
    assert await node.begin() is None
    await asyncio.wait_for(ended.wait(), 10)


async def test_a_node_is_given_up_when_the_run_goes_on_without_the_cluster(orders, tmp_path):
    store = make_run(tmp_path / "runs", "begun")
    shutil.copytree(orders.run_dir / "cluster", store.root / "cluster")

    def local(*_, **__):
        raise ComputeError("enough")

    with pytest.raises(ComputeError, match="enough"):
        async with open_session(find_run(tmp_path / "runs", "begun"), local=local):
            pass
    answer = await Node(replace(orders, run_dir=store.root)).call("train_step", {}, "train_step/3")
    assert isinstance(answer.error, LeaseLostError)


def test_the_flow_itself_imports_no_ray():
    assert compute.__name__ in sys.modules
    assert "ray" not in sys.modules
