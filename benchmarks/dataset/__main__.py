"""A run on a million rows: time and memory of each process until its first step.

python -m benchmarks.dataset [--rows 1000000] [--source jsonl|parquet]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLAN = ("begin", "first_batch", "probe")
ROOT = Path(__file__).parents[2]
CONFIG = """
name = "dataset"
run_id = "dataset"
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


def measure(config: Path, stage: str) -> dict[str, float]:
    """Return what a stage takes in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.dataset.stages", stage, str(config)],
        cwd=config.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mortal-dataset-") as name:
        folder = Path(name)
        source, config = folder / f"rows.{options.source}", folder / "dataset.toml"
        write_rows(source, options.rows)
        config.write_text(CONFIG.format(source=source))
        print(f"{options.rows:,} rows, {source.stat().st_size / 1e6:.0f} MB {options.source}")
        for stage in PLAN:
            took = measure(config, stage)
            print(
                f"{stage:>11}: {took['wall_s']:6.1f} s, CPU "
                f"{took['cpu_s']:5.1f} + {took['children_cpu_s']:5.1f} s, peak "
                f"{took['peak_mb']:5.0f} MB, children's {took['children_peak_mb']:5.0f} MB",
                flush=True,
            )
        size = sum(f.stat().st_size for f in (folder / "runs/dataset/data").rglob("*"))
        print(f"runs/dataset/data: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
