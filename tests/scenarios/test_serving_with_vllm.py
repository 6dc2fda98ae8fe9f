"""vLLM's own server serves a LoRA run: the adapter beside its base, with the trained numbers."""

import os
import signal
import subprocess
import sys

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.paths import VLLM_PYTHON
from tests.support.project import write_project
from tests.support.promotion import QUICK, REWARDS
from tests.support.undisturbed import undisturbed

PROMPT = "abc="
LORA = ("training.use_lora=true", "training.max_steps=2")
EXACT = 1e-3
"""Nats; vLLM's float32 is not transformers' to the last digit."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    (folder / "rewards.py").write_text(REWARDS)
    return undisturbed(folder, [*QUICK, *LORA], "lora")


@pytest.fixture(scope="module")
def client(run):
    command = [sys.executable, "-P", "-m", "mortal", "serve", "lora", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--python", str(VLLM_PYTHON)],
        cwd=run.store.root.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = iter(process.stdout.readline, "")
        answering = next(line for line in lines if line.startswith("curl "))
        url = answering.split()[1].removesuffix("/completions")
        yield openai.OpenAI(base_url=url, api_key="none")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
        process.stdout.close()


def first_logprob(folder, tokenizer):
    """Of the likeliest first token after the prompt, by transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(**tokenizer(PROMPT, return_tensors="pt")).logits[0, -1]
    return float(logits.log_softmax(-1).max())


def served_logprob(client, name):
    answer = client.completions.create(
        model=name, prompt=PROMPT, max_tokens=1, temperature=0, logprobs=1
    )
    return answer.choices[0].logprobs.token_logprobs[0]


def test_the_adapter_and_its_base_answer_each_with_their_own_numbers(run, client):
    assert [model.id for model in client.models.list()] == ["lora@base", "lora", "lora@2"]
    (base,) = (path for path in (run.store.root.parent / ".models").iterdir() if path.is_dir())
    tokenizer = AutoTokenizer.from_pretrained(base)
    trained = first_logprob(run.store.path("weights/v2"), tokenizer)
    before = first_logprob(base, tokenizer)
    assert abs(trained - before) > 10 * EXACT
    assert served_logprob(client, "lora") == pytest.approx(trained, abs=EXACT)
    assert served_logprob(client, "lora@2") == pytest.approx(trained, abs=EXACT)
    assert served_logprob(client, "lora@base") == pytest.approx(before, abs=EXACT)
