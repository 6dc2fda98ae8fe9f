"""GRPO with a LoRA adapter on one GPU of Modal: Qwen2.5-0.5B-Instruct learns to solve GSM8K.

    mortal deploy                        # once
    python examples/lora_on_modal.py     # kill it if you like, and call it again

What to expect, by arithmetic and Modal's list prices of July 2026; nobody has measured it:

| | |
|---|---|
| start of the container, download of the model | 3 minutes |
| a step: 64 completions of up to 512 tokens sampled, trained on and synced | 10 to 20 s |
| 200 steps on an A10G, at $1.10 an hour | 40 to 70 minutes, $0.80 to $1.30 |
| processor and memory of the container, which Modal bills beside the GPU | some cents |

The run counts what it spends, and stops with its state saved at `max_cost`.
"""

from __future__ import annotations

import argparse

from gsm8k_grpo import ProgramRuns, RightNumber, has_program, load_problems

from mortal import MortalTrainer, SingleNode


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO with a LoRA adapter on one GPU of Modal.")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--dataset", default="openai/gsm8k", help="Hub dataset, or a .jsonl file")
    parser.add_argument("--backend", choices=["local", "modal"], default="modal")
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--max_cost", type=float, default=5.0, help="in dollars")
    parser.add_argument("--run_id", default="gsm8k-lora")
    parser.add_argument("--runs_dir", default="runs")
    options = parser.parse_args()

    trainer = MortalTrainer(
        model=options.model,
        mode=SingleNode(gpu="A10G", use_vllm=options.backend == "modal"),
        reward_funcs=[has_program, ProgramRuns(), RightNumber()],
        reward_weights=[0.1, 0.2, 1.0],
        train_dataset=load_problems(options.dataset),
        use_lora=True,
        learning_rate=2e-5,  # adapters take more than whole models
        batch_size=8,
        num_generations=8,
        max_steps=options.max_steps,
        max_completion_length=512,
        max_tokens=512,
        backend=options.backend,
        run_id=options.run_id,
        runs_dir=options.runs_dir,
        config={
            "training.lora.r": 16,
            "training.lora.merge_final": True,
            "compute.modal.max_cost": options.max_cost,
            "checkpoints.save_steps": 25,
        },
    )
    print(trainer.train())


if __name__ == "__main__":
    main()
