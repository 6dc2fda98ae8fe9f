"""Seconds from a trained LoRA adapter to a worker that computes with it, beside its base.

    python -m benchmarks.weights.adapter
    python -m benchmarks.weights.adapter --engine vllm --python .venv-vllm/bin/python

The model has half a billion parameters, in Qwen2.5's shape and with random weights; the adapter is
of rank 16, on the four projections of attention. A rollout worker in another process takes one
version after the other. Sync is publish, load and verify; the canary's forward passes, one on each
side, are told beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.output import add_output_option, console, results_table, write_results

GOAL_S = 0.1
RANK = 16
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
PROBE = [3 + (7 * place) % 70 for place in range(64)]
SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": None,
}


def main() -> None:
    args = _parse()
    with tempfile.TemporaryDirectory(prefix="adapter-", dir=args.place) as name:
        folder = Path(name)
        published = _publish(folder, args.rounds)
        loaded = _load(args, folder, [row["path"] for row in published])
    rows = [{**one, **other} for one, other in zip(published, loaded, strict=True)][1:]
    _print_report(args.engine, rows)
    write_results(args.output, {"goal_s": GOAL_S, "engine": args.engine, "rounds": rows})


def _publish(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The first version is one more: whatever is slow for the first time is left out."""
    import torch
    from transformers import AutoTokenizer

    from mortal_steps.config import RunConfig
    from mortal_steps.data.problem_files import keep_problems
    from mortal_steps.policy.algorithms.base import AdapterBase
    from mortal_steps.policy.model_files.writing import adapter_tensors, save_adapter
    from mortal_steps.policy.publishing import Publisher
    from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
    from mortal_steps.store import RunStore
    from mortal_steps.system.threads import BackgroundClock
    from mortal_steps.types import Problem

    torch.set_num_threads(2)
    model = _build(folder / "base")

    class Adapted:
        tokenizer = AutoTokenizer.from_pretrained(folder / "base")
        score_s = score_cpu_s = 0.0

        def export_weights(self, folder: Path) -> None:
            save_adapter(model, folder, AdapterBase(name="base"))

        def published_digests(self) -> dict[str, str]:
            return tensor_digests(adapter_tensors(model).items())

        def score(self, token_ids: Sequence[int]) -> list[float]:
            began, began_cpu = time.perf_counter(), time.process_time()
            ids = torch.tensor([list(token_ids)])
            with torch.no_grad():
                logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            self.score_s = time.perf_counter() - began
            self.score_cpu_s = time.process_time() - began_cpu
            return logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()

    config = RunConfig.model_validate({})
    policy: Any = Adapted()
    store, rows = RunStore(folder / "run"), []
    keep_problems(store, [Problem(id="a", prompt="abcdefgh")], [])
    publisher = Publisher(store, config.rollout, config.model, config.training, BackgroundClock())
    for version in range(rounds + 1):
        _train(model)
        began, began_cpu = time.perf_counter(), time.process_time()
        path = publisher.publish(policy, version).path
        whole_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        rows.append(
            {
                "path": path,
                "bytes": sum(file.stat().st_size for file in store.path(path).iterdir()),
                "publish_s": whole_s - policy.score_s,
                "publish_cpu_s": cpu_s - policy.score_cpu_s,
                "score_s": policy.score_s,
            }
        )
    publisher.finish()
    return rows


def _build(folder: Path) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen2Config

    from mortal_steps.config import NewModelConfig
    from mortal_steps.policy.starting_model.new_model import build_tokenizer

    tokenizer = build_tokenizer(NewModelConfig())
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE, **ends))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = LoraConfig(task_type="CAUSAL_LM", r=RANK, target_modules=list(MODULES))
    return get_peft_model(model, config).eval()


def _train(model: Any) -> None:
    """Other values for the adapter, as a train step would leave them."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)


def _load(args: argparse.Namespace, folder: Path, paths: Sequence[str]) -> list[dict[str, Any]]:
    job = {
        "folder": str(folder),
        "engine": args.engine,
        "paths": list(paths),
        "lora": {"r": RANK, "target_modules": MODULES, "publish": "adapter"},
        "probe": PROBE,
    }
    env = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    script = Path(__file__).with_name("adapter_worker.py")
    command = [args.python, str(script), json.dumps(job)]
    subprocess.run(command, check=True, cwd=ROOT, env=env)
    found: list[dict[str, Any]] = json.loads((folder / "loaded.json").read_text())
    return found


def _print_report(engine: str, rows: Sequence[dict[str, Any]]) -> None:
    table = results_table(
        f"seconds of an adapter's version with {engine}, medians of {len(rows)}",
        *("MB", "publish", "load + verify", "sync", "fastest", "CPU", "canary: actor", "worker"),
    )

    def median(name: str) -> float:
        return statistics.median(row[name] for row in rows)

    syncs = [row["publish_s"] + row["load_s"] for row in rows]
    cpu = [row["publish_cpu_s"] + row["load_cpu_s"] for row in rows]
    table.add_row(
        f"{median('bytes') / 1e6:.1f}",
        *(f"{median(name):.3f}" for name in ("publish_s", "load_s")),
        f"{statistics.median(syncs):.3f}",
        f"{min(syncs):.3f}",
        f"{statistics.median(cpu):.3f}",
        *(f"{median(name):.3f}" for name in ("score_s", "canary_s")),
    )
    console.print(table)
    console.print(f"goal: {GOAL_S} s")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the engine")
    parser.add_argument("--place", default=None, help="folder for the files")
    parser.add_argument("--rounds", type=int, default=7)
    add_output_option(parser, "weights_adapter")
    return parser.parse_args()


if __name__ == "__main__":
    main()
