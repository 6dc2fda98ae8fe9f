"""Teach a model to solve word problems by writing Python programs: GRPO on GSM8K.

    python examples/gsm8k_grpo.py --mode single_node
    python examples/gsm8k_grpo.py --mode distributed --backend modal
    python examples/gsm8k_grpo.py --dataset examples/gsm8k/sample.jsonl --model ./my-model

The model is asked for a program that prints the answer. Three rewards judge what it writes: whether
there is a program at all, whether that runs, and whether it prints the right number. Programs run
in isolation, without access to your files or the network.

If it is interrupted or killed, call it again with the same `--run_id`: it continues.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal import Distributed, GPUConfig, MortalTrainer, SingleNode
from mortal.rewards import RewardEnvironment
from mortal.rewards.extraction import extract_code

MODES = {
    "single_node": SingleNode(gpu="A100-80GB"),
    "single_node_vllm_colocate": SingleNode(gpu="A100-80GB", use_vllm=True, vllm_mode="colocate"),
    "single_node_vllm_serve": SingleNode(
        gpu=GPUConfig("A100-80GB", count=2), use_vllm=True, vllm_mode="serve"
    ),
    "distributed": Distributed(actor="A100-80GB", rollout="A10G", num_rollout_workers=2),
}
ROLLOUT_PYTHON = "compute.local.rollout.python"
TASK = "Write a Python program that prints the answer as one number, between ```python and ```."


def load_problems(dataset: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows with a `prompt` (a chat) and the right `number`, out of rows like GSM8K's: a `question`,
    and an `answer` that ends with `#### 18`.

    `dataset` is a .jsonl file, or a dataset of the Hub that has them.
    """
    if dataset.endswith(".jsonl"):
        rows = [json.loads(line) for line in Path(dataset).read_text().splitlines()]
    else:
        from datasets import load_dataset  # takes a moment to import

        rows = load_dataset(dataset, "main", split="train")
    return [
        {
            "prompt": [{"role": "user", "content": f"{row['question']}\n{TASK}"}],
            "number": last_number(row["answer"].rpartition("####")[2]),
        }
        for row in list(rows)[:limit]
    ]


def last_number(text: str) -> float | None:
    """`1,234.5` from `it is $1,234.5.`; None where there is no number."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[-1].replace(",", "")) if found else None


def has_program(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """1 for a completion with a block of Python; a plain function, as TRL takes it."""
    return [float("```python" in completion[0]["content"]) for completion in completions]


class ProgramRuns(RewardEnvironment):
    """1 for a program that ends without an error."""

    name = "ProgramRuns"

    def score(self, completion: str, prompt: str, **kwargs: Any) -> float:
        return float(self.execute_in_sandbox(extract_code(completion)).success)


class RightNumber(RewardEnvironment):
    """1 for a program that prints the right number."""

    name = "RightNumber"

    def score_batch(
        self, completions: Sequence[str], prompts: Sequence[str], **kwargs: Any
    ) -> list[float]:
        results = self.execute_batch_in_sandbox([extract_code(text) for text in completions])
        return [
            float(result.success and last_number(result.stdout) == number)
            for result, number in zip(results, kwargs["number"], strict=True)
        ]


def main() -> None:
    options = parse_options()
    trainer = MortalTrainer(
        model=options.model,
        mode=MODES[options.mode],
        reward_funcs=[has_program, ProgramRuns(), RightNumber()],
        reward_weights=[0.1, 0.2, 1.0],
        train_dataset=load_problems(options.dataset, options.max_samples),
        max_steps=options.max_steps,
        batch_size=options.batch_size,
        num_generations=options.num_generations,
        max_completion_length=options.max_completion_length,
        max_tokens=options.max_completion_length,
        backend=options.backend,
        run_id=options.run_id,
        runs_dir=options.runs_dir,
        config={} if options.vllm_python is None else {ROLLOUT_PYTHON: options.vllm_python},
    )
    print(trainer.train())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="GRPO on GSM8K, solved by writing Python programs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--mode", choices=list(MODES), default="distributed")
    parser.add_argument("--backend", choices=["local", "modal"], default="local")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--dataset", default="openai/gsm8k", help="Hub dataset, or a .jsonl file")
    parser.add_argument("--max_samples", type=int, help="use only the first rows")
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--batch_size", type=int, default=8, help="prompts per step")
    parser.add_argument("--num_generations", type=int, default=8, help="completions per prompt")
    parser.add_argument("--max_completion_length", type=int, default=512, help="in tokens")
    parser.add_argument("--vllm_python", help="interpreter with vLLM, if this one has none")
    parser.add_argument("--run_id", help="of the run; that of an earlier one continues it")
    parser.add_argument("--runs_dir", default="runs", help="folder of all runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
