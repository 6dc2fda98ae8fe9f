"""SFT from the command line: chats, an adapter, several micro-batches, and evaluations."""

from dataclasses import dataclass

from datasets import load_dataset
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class ScriptArguments:
    dataset: str = "chats.jsonl"


def main(script_args, training_args, model_args):
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    dataset = load_dataset("json", data_files=script_args.dataset, split="train")
    dataset = dataset.train_test_split(test_size=3, seed=1)
    trainer = SFTTrainer(
        model=model_args.model_name_or_path,
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"] if training_args.eval_strategy != "no" else None,
        peft_config=get_peft_config(model_args),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.accelerator.print("Training completed.")
    trainer.save_model(training_args.output_dir)
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset)
        trainer.accelerator.print(f"Pushed to {trainer.hub_model_id}.")


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
