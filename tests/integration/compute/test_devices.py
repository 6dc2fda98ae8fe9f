"""Devices that a configuration names and the machine does not have."""

import pytest
import torch

from mortal.keeping import machine
from mortal_steps.compute.devices import check_devices, sharing_gpus
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError

NOT_THERE = str(torch.cuda.device_count())


@pytest.mark.parametrize("role", ["actor", "rollout"])
def test_a_device_that_is_not_there_is_named(role):
    config = RunConfig(compute={"local": {role: {"devices": [NOT_THERE]}}})
    with pytest.raises(ConfigError, match=rf"compute\.local\.{role}\.devices names '{NOT_THERE}'"):
        check_devices(config)


def test_a_worker_may_be_kept_off_every_gpu():
    check_devices(RunConfig(compute={"local": {"actor": {"devices": [""]}}}))
    check_devices(RunConfig(compute={"local": {"rollout": {"devices": ["-1"]}}}))
    check_devices(RunConfig())


def test_several_gpus_for_the_actor_are_refused(monkeypatch):
    monkeypatch.setattr("mortal_steps.compute.devices._visible", lambda python, devices: 4)
    config = RunConfig(compute={"local": {"actor": {"devices": ["2,3"]}}})
    with pytest.raises(ConfigError, match=r"'2,3'; the actor trains on one GPU\. Name one, .* '2'"):
        check_devices(config)


def test_doctor_asks_torch_in_a_process_of_its_own(monkeypatch):
    assert machine._why_unused() is None  # there is no GPU here, or torch uses it
    monkeypatch.setattr(machine, "ASK", "raise RuntimeError('broken torch')")
    assert machine._why_unused() == "RuntimeError: broken torch"


def test_who_shares_no_gpu_need_not_sleep(monkeypatch, tmp_path):
    monkeypatch.setattr("mortal_steps.compute.devices._visible", lambda python, devices: 1)
    monkeypatch.setattr("mortal_steps.system.gpus.GPUS", (str(tmp_path),))
    rollout, own = {"sleep_while_training": True}, {"actor": {"devices": ["0"]}}
    check_devices(RunConfig(rollout=rollout))
    check_devices(RunConfig(rollout=rollout, compute={"local": own}))
    own["rollout"] = {"devices": ["1"]}
    with pytest.raises(ConfigError, match=r"sleep_while_training = true: .* GPUs of their own"):
        check_devices(RunConfig(rollout=rollout, compute={"local": own}))
    monkeypatch.setattr("mortal_steps.system.gpus.GPUS", ())
    with pytest.raises(ConfigError, match="this machine has no GPU"):
        check_devices(RunConfig(rollout=rollout))


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ({"modal": {"actor": "H100:2"}}, r"modal\.actor = 'H100:2': .* Write 'H100'"),
        ({"mode": "single_node", "modal": {"gpu": "A100:2"}}, r"modal\.gpu = .* Write 'A100'"),
        (
            {"mode": "single_node", "modal": {"gpu": "A100:4", "vllm_mode": "server"}},
            r"rollout worker samples on one; .* Write 'A100:2'",
        ),
    ],
)
def test_gpus_that_would_do_nothing_are_not_rented(compute, message):
    with pytest.raises(ConfigError, match=message):
        check_devices(RunConfig(compute={"backend": "modal", **compute}))


@pytest.mark.parametrize(
    ("workers", "actor", "rollout", "share"),
    [
        (1, [], [], 0.3),
        (2, [], [], 0.2),
        (2, ["0"], ["0"], 0.2),
        (2, ["0"], ["1"], 0.45),
        (2, ["0"], ["1", "2"], None),
        (1, ["0"], ["1,2"], None),
        (4, ["0"], ["0", "1"], 0.2),
    ],
)
def test_workers_on_one_gpu_share_its_memory(workers, actor, rollout, share):
    local = {"actor": {"devices": actor}, "rollout": {"devices": rollout}}
    config = RunConfig(
        compute={"local": local}, rollout={"engine": "vllm", "num_rollout_workers": workers}
    )
    options = sharing_gpus(config).rollout.engine_options
    assert options == ({} if share is None else {"gpu_memory_utilization": share})


def test_what_the_configuration_says_of_memory_stands():
    chosen = {"engine": "vllm", "engine_options": {"gpu_memory_utilization": 0.5}}
    assert sharing_gpus(RunConfig(rollout=chosen)).rollout.engine_options == {
        "gpu_memory_utilization": 0.5
    }
    plain = RunConfig(rollout={"engine": "transformers"})
    assert sharing_gpus(plain) == plain
