"""KTO: completions that are good or bad, without options but sizes."""

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

dataset = Dataset.from_json("judged.jsonl")
training_args = KTOConfig(
    output_dir="kto",
    per_device_train_batch_size=3,
    num_train_epochs=1,
    learning_rate=1e-3,
    warmup_steps=2,
    logging_steps=1,
    bf16=False,
    use_cpu=True,
    report_to="none",
)
trainer = KTOTrainer(model="model", args=training_args, train_dataset=dataset)
result = trainer.train()
print("train_loss", result.metrics["train_loss"])
trainer.save_model(training_args.output_dir)
