"""Devices that a configuration names and the machine does not have."""

import pytest
import torch

from mortal.maintenance import doctor
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import place_of
from mortal_steps.plan.run_config import RunConfig

NOT_THERE = str(torch.cuda.device_count())


@pytest.mark.parametrize("role", ["actor", "rollout"])
def test_a_device_that_is_not_there_is_named(role):
    config = RunConfig(compute={"local": {role: {"devices": [NOT_THERE]}}})
    with pytest.raises(ConfigError, match=rf"compute\.local\.{role}\.devices names '{NOT_THERE}'"):
        place_of(config).check(samples=True)


def test_an_interpreter_counts_its_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr("mortal_steps.system.gpus.GPUS", (str(tmp_path),))
    place_of(RunConfig()).check(samples=True)
    config = RunConfig(compute={"local": {"actor": {"devices": [NOT_THERE]}}})
    with pytest.raises(ConfigError, match="its interpreter sees no CUDA device"):
        place_of(config).check(samples=True)


def test_a_worker_may_be_kept_off_every_gpu():
    place_of(RunConfig(compute={"local": {"actor": {"devices": [""]}}})).check(samples=True)
    place_of(RunConfig(compute={"local": {"rollout": {"devices": ["-1"]}}})).check(samples=True)
    place_of(RunConfig()).check(samples=True)


def test_doctor_asks_torch_in_a_process_of_its_own(monkeypatch):
    assert doctor._why_unused() is None  # there is no GPU here, or torch uses it
    monkeypatch.setattr(doctor, "ASK", "raise RuntimeError('broken torch')")
    assert doctor._why_unused() == "RuntimeError: broken torch"
