"""GSPO from the command line: several updates on each batch, a chat, held-out problems."""

from dataclasses import dataclass

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config

SYSTEM = "think, then answer"


@dataclass
class ScriptArguments:
    dataset: str = "train.jsonl"


def format_reward(completions, **kwargs):
    return [float("=" in completion[0]["content"]) for completion in completions]


def accuracy_reward(completions, answer, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    return [float(right in content) for content, right in zip(contents, answer, strict=True)]


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config()
    dtype = model_args.dtype
    dtype = dtype if dtype in ["auto", None] else getattr(torch, dtype)
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": dtype,
    }

    dataset = load_dataset("json", data_files=script_args.dataset, split="train")
    dataset = dataset.train_test_split(test_size=4, seed=42)

    def make_conversation(example):
        chat = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": example["prompt"]},
        ]
        return {"prompt": chat}

    dataset = dataset.map(make_conversation)
    trainer = GRPOTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        reward_funcs=[format_reward, accuracy_reward],
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"] if training_args.eval_strategy != "no" else None,
        peft_config=get_peft_config(model_args),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(training_args.output_dir)
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset)
