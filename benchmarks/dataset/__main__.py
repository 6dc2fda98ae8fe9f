"""A run on a million rows: time and memory of each process until its first step.

    python -m benchmarks.dataset [--rows 1000000] [--source jsonl|parquet] [--beside COMMIT]

`--beside` takes the same figures of an older commit, in a worktree of its own, in turn with this
one. `begin` comes twice: the second run finds the rows of the first where they are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLAN = (("begin", "first"), ("first_batch", "first"), ("probe", "first"), ("begin", "second"))
"""Stages and the run they belong to."""
ROOT = Path(__file__).parents[2]
CONFIG = """
name = "dataset"
[model]
max_model_len = 64
[model.new]
[data]
source = "{source}"
eval_samples = 100
[rollout]
engine = "transformers"
max_tokens = 8
num_rollout_workers = 2
[rewards]
functions = ["mortal.rewards.functions:exact_match"]
[training]
max_steps = 10
batch_size = 64
num_generations = 2
max_completion_length = 8
"""


def write_rows(path: Path, count: int) -> None:
    """Short sums, each with its answer and where it is from."""
    with path.with_suffix(".jsonl").open("w") as file:
        for row in range(count):
            left, right = row, row * 7919 % 1000
            line = {"prompt": f"{left}+{right}=", "answer": str(left + right), "source": "sums"}
            file.write(json.dumps(line) + "\n")
    if path.suffix == ".parquet":
        import pyarrow.json
        import pyarrow.parquet

        table = pyarrow.json.read_json(path.with_suffix(".jsonl"))
        pyarrow.parquet.write_table(table, path)


def measure(code: Path, folder: Path, stage: str, run_id: str, source: str) -> dict[str, float]:
    """What a stage takes in a fresh process of the version in `code`."""
    config = folder / f"{run_id}.toml"
    config.write_text(f'run_id = "{run_id}"\n' + CONFIG.format(source=source))
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/dataset/stages.py"), stage, str(config)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{stage} failed:\n{done.stderr}")
    took: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return took


def main() -> None:
    """Write the rows, measure, print a line a stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--source", choices=["jsonl", "parquet"], default="jsonl")
    parser.add_argument("--beside", metavar="COMMIT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mortal-dataset-") as name:
        folder = Path(name)
        source = folder / f"rows.{options.source}"
        write_rows(source, options.rows)
        versions = {"here": ROOT}
        if options.beside:
            there = folder / "there"
            add = ["git", "worktree", "add", "--detach", str(there), options.beside]
            subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
            versions = {options.beside: there, **versions}
        try:
            print(f"{options.rows:,} rows, {source.stat().st_size / 1e6:.0f} MB {options.source}")
            for version, code in versions.items():
                work = folder / version / "work"
                work.mkdir(parents=True, exist_ok=True)
                report(version, code, work, str(source))
        finally:
            if options.beside:
                remove = ["git", "worktree", "remove", "--force", str(folder / "there")]
                subprocess.run(remove, cwd=ROOT, check=True)


def report(version: str, code: Path, folder: Path, source: str) -> None:
    """One version's lines, and the size of its run directory."""
    for stage, run_id in PLAN:
        took = measure(code, folder, stage, run_id, source)
        print(
            f"{version:>8} {stage:>11} {run_id:>6}: {took['wall_s']:6.1f} s, CPU "
            f"{took['cpu_s']:5.1f} + {took['children_cpu_s']:5.1f} s, peak "
            f"{took['peak_mb']:5.0f} MB, children's {took['children_peak_mb']:5.0f} MB",
            flush=True,
        )
    for run_id in ("first", "second"):
        size = sum(f.stat().st_size for f in (folder / "runs" / run_id / "data").rglob("*"))
        print(f"{version:>8} runs/{run_id}/data: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
