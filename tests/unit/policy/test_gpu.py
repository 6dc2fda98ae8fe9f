"""A GPU that torch cannot use is told of; one that nobody asked for is not."""

from pathlib import Path

import pytest
import torch
from trl import GRPOConfig

from mortal_steps.compute import devices
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.stepping.options import our_options
from mortal_steps.policy.gpu import has_bfloat16, on_cpu_beside_gpu, why_unused
from mortal_steps.system import gpus


@pytest.fixture
def gpu_beside(monkeypatch, tmp_path):
    """Return a machine with a GPU of which torch knows nothing."""
    if torch.cuda.is_available():
        pytest.skip("torch can use this machine's GPU")
    monkeypatch.setattr(gpus, "GPUS", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_gpu_that_torch_cannot_use_is_told_in_its_words(gpu_beside):
    with pytest.raises((AssertionError, RuntimeError)) as told:
        torch.cuda.init()
    reason = why_unused()
    assert reason.startswith(f"torch {torch.__version__}: ")
    assert str(told.value).splitlines()[0].rstrip(".") in reason
    assert f"training runs on the CPU, because torch cannot use it ({reason})" in (
        on_cpu_beside_gpu()
    )


def test_nothing_is_told_of_a_gpu_that_is_hidden_or_missing(gpu_beside, monkeypatch):
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert on_cpu_beside_gpu() is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert on_cpu_beside_gpu() is not None
    monkeypatch.setattr(gpus, "GPUS", ())
    assert on_cpu_beside_gpu() is None


@pytest.mark.parametrize("native", [True, False])
def test_a_gpu_that_emulates_bfloat16_trains_without_autocast(monkeypatch, native):
    """As it samples: `compute.devices` asks torch the same."""

    def supported(including_emulation=True):
        return including_emulation or native

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert has_bfloat16() == native
    decided = our_options(
        Plan(RunConfig()).trainer, GRPOConfig, num_steps=1, output_dir=Path("unused")
    )
    assert decided["bf16"] == native
    assert "including_emulation=False" in devices.ASK
