"""Runs that learn from rows, under fire: their projects, who is killed when, and what their own
records say of rows that were prepared, ordered or trained on twice."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from mortal_steps.data.prepared import PREPARED
from mortal_steps.policy.algorithms.rows.epochs import epochs_of
from mortal_steps.policy.batches.prepared_rows import EpochOrder, PreparedRows
from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.run import find_run
from mortal_steps.store.identity import IDENTITY_FILE
from tests.support.chaos.project import ROWS, write_words
from tests.support.chaos.schedule import Volley, volleys

VICTIMS = ("actor-0", "flow", "server")
STAGES = ("train_step", "evaluate", "checkpoint", "draw_order")

CONFIG = """
name = "chaos"
seed = 7

[model.new]
hidden_size = 32
head_dim = 32
num_layers = 1
intermediate_size = 32
max_position_embeddings = 64

[data]
source = "train.jsonl"
eval_samples = 8

[algorithm]
type = "{algorithm}"

[training]
batch_size = 8
gradient_accumulation_steps = 2
learning_rate = 1e-3
gradient_checkpointing = false

[training.trl]
{options}

[evaluation]
eval_steps = 3

[checkpoints]
save_steps = 3

[compute.local.actor]
threads = 1
"""
OPTIONS = {
    "sft": 'neftune_noise_alpha = 5.0\ntrain_sampling_strategy = "group_by_length"',
    "dpo": "sync_ref_model = true\nref_model_sync_steps = 2",
}
"""Noise and an order that draw from the streams of training; a reference model that moves."""
SHOWN = "rows       "
"""Begins the line that a flow prints once it has had the rows prepared."""


def write_rows(folder: Path, variant: str) -> None:
    """Write a user's project: `chaos.toml` and its dataset, of words of different lengths."""
    path = folder / "train.jsonl"
    write_words(path)
    rows = [
        {"prompt": row["prompt"], "completion": row["answer"] * (1 + number % 4)}
        for number, row in enumerate(map(json.loads, path.read_text().splitlines()))
    ]
    if variant == "dpo":
        rows = [
            {"prompt": row["prompt"], "chosen": row["completion"], "rejected": row["prompt"]}
            for row in rows
        ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "chaos.toml").write_text(CONFIG.format(algorithm=variant, options=OPTIONS[variant]))


def hands(seed: int, num_kills: int, variants: Sequence[str]) -> list[list[Volley]]:
    """Return at least `num_kills` kills for those variants that learn from rows."""
    chosen = volleys(seed, num_kills, victims=VICTIMS, stages=STAGES)
    among = [name for name in variants if name in ROWS]
    return [chosen[number :: len(among)] for number in range(len(among))]


def faults_of_rows(run_dir: Path, output: Path, begun: int) -> Iterator[str]:
    """Say which rows were prepared again, and which an epoch left out or trained on twice.
    `output` is the file with what the run's flows printed; it was begun so often."""
    run = find_run(run_dir.parent, run_dir.name)
    prepared = (run_dir / PREPARED / "train.arrow").stat().st_mtime
    if prepared > (run_dir / IDENTITY_FILE).stat().st_mtime:
        yield "the rows were prepared after the run had begun"
    times = output.read_text(errors="replace").count(f"\n{SHOWN}")
    if not 1 <= times <= begun:
        yield f"the rows were prepared {times} times, and the run was begun {begun} times"
    epochs = epochs_of(run.info.num_prepared or 0, run.config.training)
    trained: dict[int, list[int]] = collections.defaultdict(list)
    for step in range(run.info.num_steps):
        entry = find_entry(run.store, step)
        assert entry is not None and isinstance(entry.request.batch, PreparedRows)
        batch = entry.request.batch
        order = run.store.read_record(batch.order, EpochOrder)
        if order.epoch != epochs.epoch(step):
            yield f"step {step} trained on rows of epoch {order.epoch}"
        for indices in order.micro_batches[batch.first : batch.stop]:
            trained[order.epoch] += indices
    for epoch, rows in trained.items():
        twice = len(rows) - len(set(rows))
        whole = (epoch + 1) * epochs.steps_per_epoch <= run.info.num_steps
        if twice or (whole and len(rows) != run.info.num_prepared):
            yield f"epoch {epoch} trained on {len(rows)} rows, {twice} of them twice"
