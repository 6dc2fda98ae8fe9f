"""What is set before vLLM is imported, in an interpreter that does not have it."""

import importlib.util
import os

import pytest

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.vllm.library import import_vllm

SET = ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_NO_USAGE_STATS", "VLLM_LOGGING_LEVEL")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="this one has it")
@pytest.mark.parametrize(("given", "expected"), [(None, "ieee"), ("tf32", "tf32")])
def test_triton_multiplies_float32_in_float32_unless_told_otherwise(given, expected, monkeypatch):
    for name in (*SET, "TORCH_CPP_LOG_LEVEL", "TRITON_F32_DEFAULT"):
        monkeypatch.setenv(name, "")  # put back after the test
        monkeypatch.delenv(name)
    if given:
        monkeypatch.setenv("TRITON_F32_DEFAULT", given)
    with pytest.raises(EngineError, match="vLLM"):
        import_vllm()
    assert os.environ["TRITON_F32_DEFAULT"] == expected
