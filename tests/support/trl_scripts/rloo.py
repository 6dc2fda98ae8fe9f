"""RLOO with an adapter on the usual layers."""

from datasets import load_dataset
from peft import LoraConfig
from trl import RLOOConfig, RLOOTrainer


def accuracy_reward(completions, answer, **kwargs):
    return [float(right in text) for text, right in zip(completions, answer, strict=True)]


def main():
    dataset = load_dataset("json", data_files="train.jsonl", split="train")
    training_args = RLOOConfig(
        output_dir="rloo",
        learning_rate=1e-5,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        max_steps=4,
        max_completion_length=8,
        log_completions=True,
        report_to="none",
        bf16=False,
    )
    trainer = RLOOTrainer(
        model="model",
        args=training_args,
        reward_funcs=[accuracy_reward],
        train_dataset=dataset,
        peft_config=LoraConfig(),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
