"""Devices that a configuration names and the machine does not have."""

import pytest
import torch

from mortal.maintenance import doctor
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import place_of
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig

NOT_THERE = str(torch.cuda.device_count())


def check(**local):
    place_of(Plan(RunConfig(compute={"local": local})).place).check(samples=True)


@pytest.mark.parametrize("role", ["actor", "rollout"])
def test_a_device_that_is_not_there_is_named(role):
    with pytest.raises(ConfigError, match=rf"compute\.local\.{role}\.devices names '{NOT_THERE}'"):
        check(**{role: {"devices": [NOT_THERE]}})


def test_an_interpreter_counts_its_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr("mortal_steps.system.gpus.GPUS", (str(tmp_path),))
    check()
    with pytest.raises(ConfigError, match="its interpreter sees no CUDA device"):
        check(actor={"devices": [NOT_THERE]})


def test_a_worker_may_be_kept_off_every_gpu():
    check(actor={"devices": [""]})
    check(rollout={"devices": ["-1"]})
    check()


def test_doctor_asks_torch_in_a_process_of_its_own(monkeypatch):
    assert doctor._why_unused() is None  # there is no GPU here, or torch uses it
    monkeypatch.setattr(doctor, "ASK", "raise RuntimeError('broken torch')")
    assert doctor._why_unused() == "RuntimeError: broken torch"
