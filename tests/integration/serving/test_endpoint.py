"""`mortal serve`, as a client meets it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.serving.server import _has_vllm_for_cpus
from tests.support.bare_flow import one_thread
from tests.support.paths import VLLM_PYTHON
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

PROMPT = "abc="
TOKENS = 4
ENV = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    # Else vLLM has one more process for the model, which imports all of vLLM.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_project(folder)
    with one_thread():
        undisturbed(folder, ["training.max_steps=2"], "run")
    return folder


@pytest.fixture(scope="module")
def served(project):
    """What `mortal serve` has printed by the time that it answers, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-P", "-m", "mortal", "serve", "run", "--port", port]
    log = project / "served.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--python", str(VLLM_PYTHON), "--", "--uvicorn-log-level", "warning"],
            cwd=project,
            env={**os.environ, **ENV},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success:
                    break
            time.sleep(0.2)
        assert process.poll() is None, log.read_text()
        yield log.read_text(), f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def greedy(project, messages=None):
    """What the trained model says, by transformers alone."""
    final = project / "runs/run/final"
    tokenizer = AutoTokenizer.from_pretrained(final)
    model = AutoModelForCausalLM.from_pretrained(final, dtype=torch.float32)
    if messages is None:
        asked = tokenizer(PROMPT, return_tensors="pt")
    else:
        asked = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
    made = model.generate(**asked, max_new_tokens=TOKENS, do_sample=False)
    return tokenizer.decode(made[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)


def test_an_openai_client_gets_what_greedy_decoding_of_the_trained_model_gives(project, served):
    said, url = served
    assert "run is completed; serving its model of step 2" in said
    assert url in said
    client = openai.OpenAI(base_url=url, api_key="none")
    assert [model.id for model in client.models.list()] == ["run", "run@2"]
    text = client.completions.create(
        model="run", prompt=PROMPT, max_tokens=TOKENS, temperature=0
    ).choices[0]
    assert text.text == greedy(project) != ""
    messages = [{"role": "user", "content": PROMPT + "c"}]
    answer = client.chat.completions.create(
        model="run", messages=messages, max_tokens=TOKENS, temperature=0
    ).choices[0]
    assert answer.message.content == greedy(project, messages)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt2", prompt=PROMPT)


def test_what_cannot_be_served_is_told_before_a_server_starts(project, monkeypatch):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(app, ["serve", "run", "--step", "9", "--python", str(VLLM_PYTHON)])
    assert isinstance(done.exception, StoreError)
    assert "it holds models of the steps" in str(done.exception)
    done = CliRunner().invoke(app, ["serve", "run"])
    assert isinstance(done.exception, ConfigError)
    assert "has no vLLM, whose server this is; name an interpreter" in str(done.exception)


def test_an_interpreter_that_cannot_run_is_named():
    with pytest.raises(ConfigError, match=r"no Python at nowhere"):
        _has_vllm_for_cpus("nowhere")
    with pytest.raises(ConfigError, match="ended with code"):
        _has_vllm_for_cpus("/bin/false")
