"""The shortest script for SFT: texts, and TRL's own defaults but for sizes."""

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

dataset = load_dataset("json", data_files="texts.jsonl", split="train")
trainer = SFTTrainer(
    model="model",
    args=SFTConfig(
        output_dir="sft",
        per_device_train_batch_size=4,
        bf16=False,
        use_cpu=True,
        report_to="none",
    ),
    train_dataset=dataset,
)
print(trainer.train())
trainer.save_model("sft")
