"""Distillation from a teacher that is deeper than the student; both decode greedily."""

from datasets import load_dataset
from trl import DistillationConfig, DistillationTrainer

args = DistillationConfig(
    output_dir="student",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    max_completion_length=6,
    top_k=1,
    shuffle_dataset=False,
    learning_rate=1e-3,
    lr_scheduler_type="cosine",
    beta=0.5,
    bf16=False,
    use_cpu=True,
    report_to="none",
)
trainer = DistillationTrainer(
    model="model",
    teacher_model="teacher",
    args=args,
    train_dataset=load_dataset("json", data_files="prompts.jsonl", split="train"),
)
trainer.train()
trainer.save_model(args.output_dir)
