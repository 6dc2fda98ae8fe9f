"""`mortal serve`, as a client meets it, of a run that was killed in step 4."""

import os
import signal
import subprocess
import sys
import tarfile

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ConfigError, StoreError
from tests.support.paths import ROOT

ARCHIVE = ROOT / "tests/integration/runs/begun_in_0_1_0.tar.gz"
PROMPT = "abc="
TOKENS = 4
"""The run's own number."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "project"


@pytest.fixture(scope="module")
def served(project):
    """What `mortal serve` has printed by the time that it answers, and its URL."""
    command = [sys.executable, "-P", "-m", "mortal", "serve", "run", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--engine", "transformers"],
        cwd=project,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("curl "):
                break
        assert process.poll() is None, "".join(lines)
        yield "".join(lines), lines[-1].split()[1].removesuffix("/completions")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
        process.stdout.close()
    assert list((project / "runs").glob(".serving-*")) == []


def greedy(project, messages=None):
    """What the trained model says, by transformers alone."""
    runs = project / "runs"
    (base,) = (path for path in (runs / ".models").iterdir() if path.is_dir())
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(runs / "run/weights/v4", dtype=torch.float32)
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
    assert "run is interrupted, step 3 of 6; serving its newest model, of step 4" in said
    client = openai.OpenAI(base_url=url, api_key="none")
    assert [model.id for model in client.models.list()] == ["run"]
    text = client.completions.create(
        model="run", prompt=PROMPT, max_tokens=TOKENS, temperature=0
    ).choices[0]
    assert text.text == greedy(project) != ""
    messages = [{"role": "user", "content": PROMPT + "c"}]
    answer = client.chat.completions.create(
        model="run", messages=messages, max_tokens=TOKENS, temperature=0
    ).choices[0]
    assert answer.message.content == greedy(project, messages)
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="gpt2", prompt=PROMPT)


def test_the_printed_curl_line_is_a_request_that_the_server_answers(served):
    said, _ = served
    line = said.splitlines()[-1]
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert '"text"' in done.stdout


def test_what_cannot_be_served_is_told_before_a_server_starts(project, monkeypatch):
    monkeypatch.chdir(project)
    done = CliRunner().invoke(app, ["serve", "run", "--port", "0", "--step", "1"])
    assert isinstance(done.exception, StoreError)
    assert "it holds models of the steps 2, 3, 4." in str(done.exception)
    done = CliRunner().invoke(app, ["serve", "run", "--port", "0", "--engine", "vllm"])
    assert isinstance(done.exception, ConfigError)
    assert "has no vLLM; name an interpreter" in str(done.exception)
