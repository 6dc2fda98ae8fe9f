"""DPO of a model object and its reference, with dropout, and metrics at the end."""

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained("model", attention_dropout=0.1)
ref_model = AutoModelForCausalLM.from_pretrained("model", attention_dropout=0.1)
tokenizer = AutoTokenizer.from_pretrained("model")
dataset = load_dataset("json", data_files="preferences.jsonl", split="train")
dataset = dataset.train_test_split(test_size=4, seed=1)
args = DPOConfig(
    output_dir="dpo",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    max_steps=5,
    learning_rate=1e-3,
    loss_type=["sigmoid_norm", "sft"],
    disable_dropout=False,
    eval_strategy="steps",
    eval_steps=2,
    bf16=False,
    use_cpu=True,
    report_to="none",
)
trainer = DPOTrainer(
    model,
    ref_model,
    args=args,
    train_dataset=dataset["train"],
    eval_dataset={"few": dataset["test"].select([0]), "many": dataset["test"]},
    processing_class=tokenizer,
)
trainer.train()
metrics = trainer.evaluate()
trainer.log_metrics("eval", metrics)
trainer.save_metrics("eval", metrics)
trainer.save_model(args.output_dir)
