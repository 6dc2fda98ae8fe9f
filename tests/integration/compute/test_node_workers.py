"""Who works in a Modal container, and on which GPUs."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.roles import worker_specs
from mortal_steps.errors import DataError, WorkerLostError
from mortal_steps.places.modal.inside.host import Workers
from mortal_steps.places.modal.inside.specs import in_containers
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.engines.table import VLLM_PYTHON

SPEC = WorkerSpec(factory="tests.support.workers:Counter", kwargs={})


@pytest.fixture
def node():
    workers = Workers({"actor": SPEC, "rollout": SPEC})
    yield workers
    workers.close()


def test_each_role_of_a_node_has_a_process(node):
    assert [node.call("actor", "add", {"amount": n}, "") for n in (1, 2)] == [1, 3]
    assert node.call("rollout", "add", {"amount": 5}, "") == 5
    pids = {node.call(role, "pid", {}, "") for role in ("actor", "rollout")}
    assert len(pids | {os.getpid()}) == 3
    with pytest.raises(DataError, match="no such thing"):
        node.call("actor", "fail", {"kind": "own"}, "")


def test_a_lost_process_is_named_and_comes_back(node):
    lost = node.call("actor", "pid", {}, "")
    threading.Timer(0.3, os.kill, (lost, signal.SIGKILL)).start()
    with pytest.raises(WorkerLostError, match=rf"actor \(process {lost}\) ended: SIGKILL"):
        node.call("actor", "sleep", {"seconds": 30}, "")
    assert node.call("actor", "add", {"amount": 4}, "") == 4


def test_no_process_works_on_in_a_container_that_is_taken_away(node):
    pid = node.call("actor", "pid", {}, "")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        node.call("actor", "sleep", {"seconds": 30}, "")
    assert time.monotonic() - began < 25
    assert not Path(f"/proc/{pid}").exists()
    assert node.call("actor", "add", {"amount": 4}, "") == 4, "Modal may have another call for it"


def specs_on(monkeypatch, engine, options=None, **modal):
    """What a node starts for a run of an RL engineer whose own machine has paths of its own."""
    monkeypatch.setenv(VLLM_PYTHON, "/opt/vllm/bin/python")
    local = {"rollout": {"python": "/home/me/python", "devices": ["5"], "env": {"A": "B"}}}
    config = RunConfig(
        rollout={"engine": engine, "engine_options": options or {"seed": 1}},
        compute={"backend": "modal", "mode": "single_node", "modal": modal, "local": local},
    )
    specs = worker_specs(
        Plan(config).workers, run_dir=Path("/runs/r"), fingerprint="f", model_path="m", num_steps=3
    )
    return specs, in_containers(specs, config.compute)


@pytest.mark.parametrize(("engine", "python"), [("vllm", "/opt/vllm/bin/python"), (None, None)])
def test_a_teacher_has_the_interpreter_of_its_image(monkeypatch, engine, python):
    monkeypatch.setenv(VLLM_PYTHON, "/opt/vllm/bin/python")
    teacher = {"name_or_path": "org/large", "engine": engine or "transformers"}
    config = RunConfig(
        algorithm={"type": "opd", "teachers": {"main": teacher}},
        rollout={"engine": "vllm"},
        compute={"backend": "modal", "local": {"rollout": {"python": "/home/me/python"}}},
    )
    workers = Plan(config).workers
    specs = worker_specs(
        workers, run_dir=Path("/runs/r"), fingerprint="f", model_path="m", num_steps=3
    )
    plan = in_containers(specs, config.compute)["reward"].kwargs["plan"]
    assert plan.needs_engine == engine
    assert plan.compute.local.rollout.python == python


def test_on_one_gpu_vllm_leaves_memory_to_the_actor(monkeypatch):
    plain, node = specs_on(monkeypatch, "vllm")
    assert node["rollout"].python == "/opt/vllm/bin/python"
    assert (node["rollout"].devices, node["rollout"].env) == ((), {})
    options = node["rollout"].kwargs["plan"].rollout.engine_options
    assert options == {"gpu_memory_utilization": 0.3, "seed": 1}
    assert node["actor"] == plain["actor"], "whose configuration decides what a run is"


def test_with_several_gpus_the_last_one_samples(monkeypatch):
    plain, node = specs_on(monkeypatch, "vllm", gpu="A100:3", vllm_mode="server")
    assert (node["actor"].devices, node["rollout"].devices) == (("0,1",), ("2",))
    assert node["rollout"].kwargs == plain["rollout"].kwargs


def test_an_engine_on_several_gpus_has_the_last_ones(monkeypatch):
    options = {"tensor_parallel_size": 2}
    _, node = specs_on(monkeypatch, "vllm", options, gpu="A100:3", vllm_mode="server")
    assert (node["actor"].devices, node["rollout"].devices) == (("0",), ("1,2",))


def test_transformers_sample_in_the_environment_of_the_actor(monkeypatch):
    plain, node = specs_on(monkeypatch, "transformers")
    assert (node["rollout"].python, node["rollout"].kwargs) == (None, plain["rollout"].kwargs)
    assert node["rollout"].count == 1
