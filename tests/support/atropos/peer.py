"""The real thing: Atropos' API server and an environment of its, in an interpreter that has
atroposlib."""

import contextlib
import os
import socket
import subprocess
import time

import httpx
from safetensors.torch import load_file, save_file

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.system.child import Child
from tests.support.paths import ATROPOS_PYTHON, ROOT

ENVIRONMENT = ROOT / "tests/support/atropos/letters_env.py"
ALPHABET = "abcdefgh"
"""Of which the environment asks for four letters."""
VERSION = "0.4.0"


def has_atropos():
    """Whether there is an interpreter with atroposlib."""
    return ATROPOS_PYTHON.exists()


SHARPER = 3
"""An adapter leaves the output embedding as it is, and below one that was never trained, no two
tokens get more than a nat apart. A trained model's logits are further apart; so are these."""


def make_model(folder):
    """Write the model that is trained."""
    build_model(folder, NewModelConfig(alphabet=ALPHABET), seed=7)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= SHARPER
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def free_ports(count):
    """Return ports that are free now."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


@contextlib.contextmanager
def real_peer(model, folder, *, policy_port):
    """Run an API server, and an environment that samples at `policy_port`; yield the server's
    address. Their output is in files in `folder`."""
    api_port, log_port = free_ports(2)
    url = f"http://127.0.0.1:{api_port}"
    environment = {
        **os.environ,
        "ATROPOS_ZMQ_PORT": str(log_port),
        "WANDB_MODE": "disabled",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    options = {
        "env.tokenizer_name": model,
        "env.rollout_server_url": url,
        "env.max_batches_offpolicy": 1,
        "openai.base_url": f"http://127.0.0.1:{policy_port}/v1",
        "openai.api_key": "none",
        "openai.model_name": "policy",
        "openai.server_type": "vllm",
        "openai.tokenizer_name": model,
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    commands = {
        "api": [str(ATROPOS_PYTHON.with_name("run-api")), "--port", str(api_port)],
        "environment": [str(ATROPOS_PYTHON), str(ENVIRONMENT), "serve", *flags],
    }
    with contextlib.ExitStack() as stack:
        for name, command in commands.items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            child = Child(command, env=environment, cwd=folder, output=log)
            stack.callback(_end, child)
            if name == "api":
                _wait_for(url)
        yield url


def _wait_for(url, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return httpx.get(f"{url}/info").raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "run-api does not answer"
            time.sleep(0.1)


def _end(child):
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=20)
