"""Runs scripts for TRL with two lines changed: the import, and the name of the class."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mortal_steps.config.model import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import list_runs

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


def as_mortals(script):
    """Return the script with the two lines changed."""
    trainer = re.search(r"\w+Trainer(?=\()", script).group()
    imported = re.search(rf"from trl import .*\b{trainer}\b.*", script).group()
    others = re.sub(rf", {trainer}\b", "", imported)
    changed = script.replace(imported, f"from mortal import MortalTrainer\n{others}")
    return changed.replace(f"{trainer}(", "MortalTrainer(")


@pytest.fixture
def ran(tmp_path, server):
    """Runs a script; its only run, its output, and its folder."""
    build_model(tmp_path / "model", SHAPE, seed=1)
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))

    def run(name, output_dir, *arguments):
        changed = as_mortals((SCRIPTS / f"{name}.py").read_text())
        (tmp_path / "script.py").write_text(changed)
        env = {"PREFECT_API_URL": server.api_url, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        finished = subprocess.run(
            [sys.executable, "script.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        (found,) = list_runs(tmp_path / output_dir)
        assert found.is_complete()
        return found, finished.stdout + finished.stderr, tmp_path / output_dir

    return run


def updates(run):
    """Optimizer updates, which TRL's `max_steps` counts."""
    return run.metrics()[-1]["optimizer_steps"]


def adapted(run):
    """Layers that have an adapter in the trained model."""
    saved = run.store.path(run.manifest.final.path) / "adapter_config.json"
    return set(json.loads(saved.read_text())["target_modules"])
