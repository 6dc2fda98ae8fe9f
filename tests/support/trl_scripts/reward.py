"""A reward model from a classifier with a padding token of the script's own."""

from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed
from trl import RewardConfig, RewardTrainer

set_seed(3)
tokenizer = AutoTokenizer.from_pretrained("model")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=1)
model.config.pad_token_id = tokenizer.pad_token_id
dataset = load_dataset("json", data_files="preferences.jsonl", split="train")
trainer = RewardTrainer(
    model=model,
    processing_class=tokenizer,
    args=RewardConfig(
        output_dir="reward",
        per_device_train_batch_size=2,
        max_steps=4,
        center_rewards_coefficient=0.01,
        max_length=None,
        bf16=False,
        use_cpu=True,
        report_to="none",
    ),
    train_dataset=dataset,
    eval_dataset=dataset.select(range(3)),
)
trainer.train()
print("accuracy", trainer.evaluate()["eval_accuracy"])
trainer.save_model("reward")
