"""Runs scripts for TRL with two lines changed: the import, and the name of the class."""

import json
import os
import re
from pathlib import Path

import pytest

import mortal
from mortal_steps.config.model import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import list_runs
from tests.support.environments.models import build_model as build_agents_model
from tests.support.forked_commands import ForkedCommand

SCRIPTS = Path(__file__).parent / "trl_scripts"
SHAPE = NewModelConfig(
    hidden_size=32, num_layers=1, intermediate_size=32, max_position_embeddings=64
)
ROWS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(4) for b in range(4)]
SIZES = (
    *("--model_name_or_path", "model", "--max_completion_length", "8", "--bf16", "False"),
    *("--per_device_train_batch_size", "2", "--num_generations", "4", "--max_steps", "4"),
    *("--steps_per_generation", "4", "--gradient_accumulation_steps", "2"),
)
GSPO = (
    *(*SIZES, "--output_dir", "gspo", "--importance_sampling_level", "sequence"),
    *("--epsilon", "3e-4", "--epsilon_high", "4e-4", "--loss_type", "grpo", "--beta", "0.0"),
    *("--eval_strategy", "steps", "--eval_steps", "2", "--log_completions"),
)
LORA = (*SIZES, "--output_dir", "lora", "--use_peft", "--lora_r", "4", "--lora_alpha", "8")


IN_TURN = """
import json, os, runpy, sys

for output, (name, arguments) in json.loads(sys.argv[1]).items():
    said = os.open(f"{output}.out", os.O_WRONLY | os.O_CREAT)
    sys.stdout.flush()
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv[1:] = arguments
    runpy.run_path(f"{name}.py", run_name="__main__")
"""


def as_mortals(script):
    """Return the script with the two lines changed."""
    trainer = re.search(r"\w+Trainer(?=\()", script).group()
    ours = trainer if hasattr(mortal, trainer) else "MortalTrainer"
    imported = re.search(rf"from trl import .*\b{trainer}\b.*", script).group()
    others = re.sub(rf", {trainer}\b", "", imported)
    changed = script.replace(imported, f"from mortal import {ours}\n{others}")
    return changed.replace(f"{trainer}(", f"{ours}(")


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory, server):
    """Runs the module's `SCRIPTS`, one after the other in a process, which has imported TRL before.
    Of each, by its output folder: its only run, what it printed, and that folder."""
    folder, scripts = tmp_path_factory.mktemp("scripts"), request.module.SCRIPTS
    build_model(folder / "model", SHAPE, seed=1)
    build_agents_model(folder / "agent", "qwen3")
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    for name, _ in scripts.values():
        (folder / f"{name}.py").write_text(as_mortals((SCRIPTS / f"{name}.py").read_text()))
    env = {"PREFECT_API_URL": server.api_url, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    turns = ["-c", IN_TURN, json.dumps(scripts)]
    code = ForkedCommand(turns, cwd=folder, env={**os.environ, **env}).wait()
    said = {file.stem: file.read_text() for file in folder.glob("*.out")}
    assert code == 0, said
    runs = {output: list_runs(folder / output) for output in scripts}
    assert all(run.is_complete() for (run,) in runs.values())
    return {output: (run, said[output], folder / output) for output, (run,) in runs.items()}


def updates(run):
    """Optimizer updates, which TRL's `max_steps` counts."""
    return run.metrics()[-1]["optimizer_steps"]


def adapted(run):
    """Layers that have an adapter in the trained model."""
    saved = run.store.path(run.manifest.final.path) / "adapter_config.json"
    return set(json.loads(saved.read_text())["target_modules"])
