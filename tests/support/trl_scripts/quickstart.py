"""The shortest script for GRPO."""

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

dataset = load_dataset("json", data_files="train.jsonl", split="train")


def many_letters(completions, **kwargs):
    return [float(len(set(completion))) for completion in completions]


trainer = GRPOTrainer(
    model="model",
    reward_funcs=many_letters,
    args=GRPOConfig(
        output_dir="quickstart-GRPO",
        max_completion_length=8,
        max_steps=2,
        logging_steps=1,
        bf16=False,
    ),
    train_dataset=dataset,
)
trainer.train()
