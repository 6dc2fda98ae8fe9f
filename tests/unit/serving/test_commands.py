"""How the engines' own servers are started."""

import json
import sys

import pytest

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ConfigError
from mortal_steps.serving.commands import (
    Endpoint,
    Interpreter,
    transformers_command,
    url_of,
    vllm_command,
)
from mortal_steps.serving.folder import ServedModel

SHAPE = {"num_hidden_layers": 4, "num_key_value_heads": 8, "head_dim": 128}
HERE = Endpoint(host="127.0.0.1", port=8000)


def served(folder, *, adapter=None, name="tiny"):
    config = {**SHAPE, "max_position_embeddings": 4096, "num_attention_heads": 8}
    (folder / "config.json").write_text(json.dumps(config))
    return ServedModel(
        run_id="tiny", step=12, name=name, model=folder, adapter=adapter, hub=folder / "hub"
    )


def options(command):
    """By name, what follows each option."""
    found, name = {}, ""
    for argument in command.arguments:
        if argument.startswith("--"):
            name = argument
            found[name] = []
        elif name:
            found[name].append(argument)
    return found


def vllm(folder, *, on_cpu=False, endpoint=HERE, model=None, adapter=None):
    interpreter = Interpreter(python="/opt/python", vllm=True, on_cpu=on_cpu)
    chosen = model or ModelConfig()
    return vllm_command(interpreter, served(folder, adapter=adapter), chosen, endpoint)


def test_vllm_serves_the_model_by_the_run_and_by_its_step(tmp_path):
    command = vllm(tmp_path, model=ModelConfig(dtype="float32"))
    assert command.arguments[:4] == (
        "/opt/python",
        "-P",
        "-m",
        "vllm.entrypoints.openai.api_server",
    )
    given = options(command)
    assert given["--served-model-name"] == ["tiny", "tiny@12"]
    assert given["--model"] == [str(tmp_path)]
    assert given["--dtype"] == ["float32"]
    assert given["--max-model-len"] == ["4096"]
    assert (given["--host"], given["--port"]) == (["127.0.0.1"], ["8000"])
    assert "--enforce-eager" not in given
    assert "--trust-remote-code" not in given


def test_vllm_on_a_cpu_never_cuts_a_prefill_and_takes_little_memory(tmp_path):
    given = options(vllm(tmp_path, on_cpu=True, model=ModelConfig(max_model_len=1024)))
    assert "--no-enable-chunked-prefill" in given
    assert given["--max-num-batched-tokens"] == ["2048"]
    # Keys and values, layers, heads, their size, bytes, tokens, sequences.
    assert given["--kv-cache-memory-bytes"] == [str(2 * 4 * 8 * 128 * 4 * 1024 * 4)]


@pytest.mark.parametrize(("rank", "room"), [(4, "8"), (16, "16"), (17, "32")])
def test_vllm_takes_an_adapter_beside_its_base(tmp_path, rank, room):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"r": rank}))
    given = options(vllm(tmp_path, adapter=adapter))
    assert given["--served-model-name"] == ["tiny@base"]
    assert given["--lora-modules"] == [f"tiny={adapter}", f"tiny@12={adapter}"]
    assert given["--max-lora-rank"] == [room]


def test_an_adapter_that_is_too_wide_for_vllm_is_to_be_merged(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1024}))
    with pytest.raises(ConfigError, match=r"training\.lora\.r = 1024.*--merged"):
        vllm(tmp_path, adapter=tmp_path)


def test_options_of_the_user_come_last_and_so_win(tmp_path):
    endpoint = Endpoint(host="::1", port=1, extra=("--max-model-len", "64"))
    assert vllm(tmp_path, endpoint=endpoint).arguments[-2:] == ("--max-model-len", "64")


def test_transformers_serves_the_model_by_its_name_and_nothing_of_the_hub(tmp_path):
    model = ModelConfig(dtype="float32", trust_remote_code=True)
    wanted = served(tmp_path, name="tiny@12")
    command = transformers_command(wanted, model, HERE, {"enable_thinking": False})
    given = options(command)
    assert command.arguments[0] == sys.executable
    assert command.arguments[4:6] == ("serve", "tiny@12")
    assert given["--chat-template-kwargs"] == ['{"enable_thinking": false}']
    assert "--trust-remote-code" in given
    assert command.environment["HF_HUB_OFFLINE"] == "1"
    assert command.environment["HF_HUB_CACHE"] == str(tmp_path / "hub")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1"),
        ("0.0.0.0", "http://127.0.0.1:8000/v1"),
        ("::1", "http://[::1]:8000/v1"),
    ],
)
def test_clients_here_reach_the_server_at_its_own_address(host, url):
    assert url_of(Endpoint(host=host, port=8000)) == url
