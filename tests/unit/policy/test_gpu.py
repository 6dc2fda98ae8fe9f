"""A GPU that torch cannot use is told of; one that nobody asked for is not."""

import pytest
import torch

from mortal_steps.policy.algorithms.stepping.place import on_cpu_beside_gpu
from mortal_steps.policy.gpu import why_unused
from mortal_steps.system import gpus


@pytest.fixture
def gpu_beside(monkeypatch, tmp_path):
    """A machine with a GPU of which torch knows nothing."""
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
