"""Train alternately with stock TRL and with MORTAL and print how long a step takes in each.

    python -m benchmarks.vs_trl                        # both models, about a quarter of an hour
    python -m benchmarks.vs_trl --models demo --steps 30 --rounds 1
    python -m benchmarks.vs_trl --mortal actor2:compute.local.actor.threads=2
    python -m benchmarks.vs_trl --models smollm smollm-8 --rounds 5    # `make train-smollm` first
    python -m benchmarks.vs_trl --models sft dpo --rounds 3            # learning from rows

Both start from the same weights and train on the same rows with the same options. TRL runs in one
process, once with one OpenMP thread and once with two; the better one counts. MORTAL runs its flow
against a local Prefect server with one thread per worker, but for what the configuration says.
Beside the pretrained model, and on rows, all have one thread, and TRL runs as a user would start
it, and keeping its memory as MORTAL's workers do.
"""

import argparse
import dataclasses
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT, ask, in_turn
from benchmarks.output import command_line, folder_for, write_results
from benchmarks.server import measured_run, own_server
from benchmarks.vs_trl.report import TrainingStats, print_report, training_stats
from mortal.server.files import Server
from mortal_steps.compute.local_container import ENVIRONMENT, KEEPING_MEMORY
from mortal_steps.plan.loader import load_config
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import find_run

SMOLLM = ROOT / "deployments/configs/smollm.toml"
ROWS = Path(__file__).with_name("rows.toml")
ONE_THREAD = ("compute.local.actor.threads=1", "compute.local.rollout.threads=1")
LARGER = ("model.new.hidden_size=512", "model.new.intermediate_size=1024")
MODELS = {
    "demo": (ROOT / "deployments/configs/demo.toml", ()),
    "small": (Path(__file__).with_name("small.toml"), ()),
    "smollm": (SMOLLM, ONE_THREAD),
    "smollm-8": (SMOLLM, (*ONE_THREAD, "training.batch_size=1")),
    "sft": (ROWS, ONE_THREAD),
    "sft-10m": (ROWS, (*ONE_THREAD, *LARGER)),
    "dpo": (ROWS, (*ONE_THREAD, "algorithm.type=dpo")),
}
"""A configuration and what is set otherwise. `smollm-8` has 8 completions in a step, not 32."""
STEPS = {"demo": 100, "small": 30, "smollm": 8, "smollm-8": 12, "sft": 30, "sft-10m": 16, "dpo": 16}
STOCK = {
    "TRL, 1 thread": (1, {}),
    "TRL, 2 threads": (2, {}),
    "TRL, keeps memory": (1, {**ENVIRONMENT, **KEEPING_MEMORY}),
}
"""OMP_NUM_THREADS, and other variables."""
TRAINING_ALONE = ["evaluation.eval_steps=0", "checkpoints.save_steps=1000000"]
"""Stock TRL would evaluate and save in its own way; neither does, so that steps compare."""


def main() -> None:
    args = _parse()
    os.chdir(ROOT)
    stats: list[TrainingStats] = []
    began = time.perf_counter()
    with folder_for("vs-trl") as folder, own_server(folder) as server:
        server_s = time.perf_counter() - began
        for model in args.models:
            config, overrides = MODELS[model]
            start = {"config": str(config), "overrides": [*_common(model, folder), *overrides]}
            weights = ask("vs_trl.stock:starting_model", start)
            for job in _jobs(model, args, folder):
                stats.append(_train(job, weights, server))
                print(stats[-1].line(), flush=True)
    print_report(stats, server_s)
    write_results(args.output, {"server_start_s": server_s, "runs": stats})


def _parse() -> argparse.Namespace:
    parser = command_line("vs_trl", __doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["demo", "small"])
    parser.add_argument("--steps", type=int, help=f"train steps (default: {STEPS})")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--mortal",
        action="append",
        metavar="NAME[:KEY=VALUE,...]",
        help="a variant of MORTAL with overrides; repeatable (default: `mortal` as it is)",
    )
    args = parser.parse_args()
    if args.steps is not None and args.steps < 6:
        parser.error("--steps must be at least 6: the first few are warm-up")
    return args


def _jobs(model: str, args: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of one model, round by round."""
    steps = args.steps or STEPS[model]
    path, own = MODELS[model]
    left_out = "TRL, 2 threads" if path in (SMOLLM, ROWS) else "TRL, keeps memory"
    variants = {name: () for name in STOCK if name != left_out}
    for text in args.mortal or ["mortal"]:
        name, _, overrides = text.partition(":")
        variants[name] = tuple(filter(None, overrides.split(",")))
    for number in range(args.rounds):
        for name in in_turn(list(variants), number):
            run_id = f"{model}-{number}-{len(variants)}-{list(variants).index(name)}"
            yield {
                "model": model,
                "variant": name,
                "round": number,
                "steps": steps,
                "run_id": run_id,
                "runs_dir": str(folder / "runs"),
                "config": str(path),
                "overrides": [
                    *_common(model, folder),
                    *own,
                    *variants[name],
                    f"training.max_steps={steps}",
                    f"run_id={run_id}",
                ],
                "folder": str(folder / f"{run_id}-trl"),
            }


def _common(model: str, folder: Path) -> list[str]:
    common = [*TRAINING_ALONE, f"runs_dir={folder / 'runs'}"]
    if MODELS[model][0] != ROWS:
        return common
    return [*common, f"data.source={write_rows(folder / f'{model}.jsonl', model)}"]


def write_rows(path: Path, model: str, count: int = 1000) -> Path:
    """Write rows to learn from, pairs of a prompt and a completion or, for DPO, preferences."""
    drawn = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            text = "".join(drawn.choices("abcdefghij ", k=drawn.randint(10, 60)))
            row = {"prompt": text, "completion": text[::-1]}
            if model == "dpo":
                row = {"prompt": text, "chosen": text[::-1], "rejected": text}
            file.write(json.dumps(row) + "\n")
    return path


def _train(job: dict[str, Any], weights: str, server: Server) -> TrainingStats:
    is_stock = job["variant"] in STOCK
    threads, variables = STOCK.get(job["variant"], (1, {}))
    function = "vs_trl.stock:measure" if is_stock else "measured_run:measure"
    order = {**job, "model": weights, "prefect": True}
    variables = {**variables, "OMP_NUM_THREADS": str(threads)}
    outcome = measured_run(server, order, function=function, variables=variables)
    if not is_stock:
        run = find_run(Path(job["runs_dir"]), job["run_id"])
        measure = "loss" if run.config.algorithm.judges_by_loss else "reward"
        outcome["rewards"] = [row[measure] for row in run.metrics()]
        outcome["stages"] = dataclasses.asdict(summarize(run))["timings"]
    config = load_config(Path(job["config"]), job["overrides"])
    training, of_rows = config.training, config.algorithm.judges_by_loss
    return training_stats(job, outcome, rows=training.batch_size if of_rows else training.rows)


if __name__ == "__main__":
    main()
