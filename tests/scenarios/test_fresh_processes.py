"""Sampling in processes that know nothing of each other."""

import os
import subprocess
import sys

from mortal_steps.compute.base import WorkerSpec
from tests.support.rollout.cases import seeds

TEXTS = ["abc=", "hello world", "x", "reverse 12345 =>", "a b c d e f g h", "Zz"]


def test_same_seeds_and_threads_give_the_same_bits_in_fresh_processes(model_a):
    """Another number of threads may round otherwise: it belongs to a run's identity."""
    script = f"""
import json, torch
from transformers import AutoTokenizer
from mortal_steps.config import ModelConfig, NewModelConfig, RolloutConfig
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.types import SamplingParams
tokenizer = AutoTokenizer.from_pretrained({str(model_a)!r})
engine = TransformersEngine(model_path={str(model_a)!r}, model=ModelConfig(),
                            rollout=RolloutConfig(engine="transformers"),
                            tokenizer=lambda: tokenizer)
prompts = [tokenizer(text)["input_ids"] for text in {TEXTS!r}] * 8
sampled = engine.sample(prompts, {seeds(48)!r}, SamplingParams(max_tokens=80))
print(torch.get_num_threads())
print(json.dumps([[list(s.token_ids), list(s.logprobs), s.finish_reason] for s in sampled]))
"""
    threading = WorkerSpec(factory="", kwargs={}, threads=2).threading()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, **threading, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    one, other = [process.communicate()[0].splitlines() for process in processes]
    assert one[0] == other[0] == "2"
    assert one[1] == other[1]
