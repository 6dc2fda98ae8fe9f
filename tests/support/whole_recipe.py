"""A recipe of next to no size, and what it leaves on disk."""

import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from mortal_steps.recipes.record import RecipeFolder, RecipeRecord
from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.run import find_run
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project

RECIPE = """
name = "words"

[defaults.model]
max_model_len = 64

[defaults.training]
gradient_checkpointing = false

[defaults.compute.local.actor]
threads = 1

[stages.sft]
algorithm.type = "sft"
model.new = { hidden_size = 16, head_dim = 16, num_layers = 1, intermediate_size = 16 }
data = { source = "rows.jsonl", eval_samples = 4 }
training = { batch_size = 4, max_steps = 24, learning_rate = 1e-2 }
checkpoints.save_steps = 6

[stages.rm]
algorithm.type = "reward"
model.name_or_path = "stage:sft"
data = { source = "pairs.jsonl", eval_samples = 4 }
training = { batch_size = 4, max_steps = 12, learning_rate = 1e-2 }
checkpoints.save_steps = 6

[stages.grpo]
model.name_or_path = "stage:sft"
data = { source = "train.jsonl", eval_samples = 4 }
rollout = { engine = "transformers", num_rollout_workers = 1, num_shards = 2, max_tokens = 6 }
training = { batch_size = 4, num_generations = 4, max_steps = 4, learning_rate = 1e-3 }
checkpoints.save_steps = 2

[[stages.grpo.rewards.terms]]
type = "model"
model = "stage:rm"

[[stages.grpo.rewards.terms]]
type = "function"
function = "rewards.py:matches"

[stages.gate]
type = "promote"
run = "stage:grpo"
approval = "threshold"
min_gain = -10.0
"""


def write_recipe(folder: Path) -> Path:
    """Write a project with a recipe, its data and a reward function; return the recipe's file."""
    write_project(folder)
    words = [json.loads(line) for line in (folder / "train.jsonl").open()]
    rows = [{"prompt": row["prompt"], "completion": row["answer"]} for row in words]
    pairs = [
        {**row, "chosen": row["completion"], "rejected": row["completion"][::-1]} for row in rows
    ]
    for pair in pairs:
        del pair["completion"]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (folder / "words.toml").write_text(RECIPE)
    return folder / "words.toml"


def record_of(folder: Path, name: str = "words") -> RecipeRecord | None:
    return RecipeFolder(folder / "runs", name).read()


def digests(folder: Path, name: str = "words") -> dict[str, str | None]:
    """Return the digest of the weights of each stage that is a run, and what the gate decided."""
    record = record_of(folder, name)
    assert record is not None and record.status == "completed", record
    found: dict[str, str | None] = {}
    for stage, each in record.stages.items():
        if each.kind == "train":
            run = find_run(folder / "runs", str(each.job_id))
            assert run.manifest.final is not None
            found[stage] = run.manifest.final.weights_sha256
            lines = run.store.path("metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line)["step"] for line in lines]
            assert steps == list(range(1, run.num_steps + 1)), f"{stage}: {steps}"
        else:
            found[stage] = each.sha256
    return found


def wait_until(folder: Path, stage: str, step: int, process, name: str = "words") -> None:
    """Wait until a stage, which is a run, has done so many steps; 0: until it has begun."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        record = record_of(folder, name)
        each = record.stages.get(stage) if record else None
        if each is not None and each.standing == "complete":
            pytest.fail(f"stage {stage} was complete before it was killed")
        if each is not None and each.standing == "running":
            if step == 0:
                return
            try:
                if find_run(folder / "runs", str(each.job_id)).manifest.step >= step:
                    return
            except Exception:  # noqa: BLE001 - it has not begun
                pass
        time.sleep(0.02)
    pytest.fail(f"stage {stage} did not reach step {step}")


def kill_recipe(folder: Path, name: str = "words") -> None:
    """Kill the process that drives the recipe."""
    lease = read_lease(RecipeFolder(folder / "runs", name).store)
    assert lease is not None
    os.kill(lease.pid, signal.SIGKILL)


def kill_stage(folder: Path, stage: str, name: str = "words") -> None:
    """Kill the process of a stage that is a run."""
    record = record_of(folder, name)
    assert record is not None
    lease = read_lease(find_run(folder / "runs", str(record.stages[stage].job_id)).store)
    assert lease is not None
    os.kill(lease.pid, signal.SIGKILL)


def left_running(api_url: str, name: str = "words") -> list[str]:
    """Return the names of flow runs of the recipe that the server believes to run."""
    wanted = {
        "flow_runs": {
            "tags": {"all_": [f"recipe:{name}"]},
            "state": {"type": {"any_": ["RUNNING", "PENDING"]}},
        }
    }
    found = httpx.post(f"{api_url}/flow_runs/filter", json=wanted, timeout=30).json()
    return [each["name"] for each in found]
