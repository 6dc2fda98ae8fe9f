"""The cells of a notebook, one after the other."""

# Cell 1: the data
from datasets import load_dataset

train_dataset = load_dataset("json", data_files="train.jsonl", split="train")

# Cell 2: the model
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
tokenizer = AutoTokenizer.from_pretrained("model")

# Cell 3: the adapter
from peft import LoraConfig

peft_config = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])


# Cell 4: the rewards
def format_reward(completions, **kwargs):
    return [1.0 if text.startswith("a") else 0.0 for text in completions]


def len_reward(completions, **kwargs):
    return [-abs(4 - len(text)) / 4 for text in completions]


# Cell 5: training
from trl import GRPOConfig, GRPOTrainer

output_dir = "notebook-GRPO"
training_args = GRPOConfig(
    learning_rate=2e-5,
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_generations=4,
    max_completion_length=8,
    output_dir=output_dir,
    logging_steps=1,
    report_to="tensorboard",
    push_to_hub=False,
    bf16=False,
)
trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    reward_funcs=[format_reward, len_reward],
    args=training_args,
    train_dataset=train_dataset,
    peft_config=peft_config,
)
trainer_stats = trainer.train()
print(f"{trainer_stats.metrics['train_runtime']:.1f} seconds used for training.")
print(f"{round(trainer_stats.metrics['train_runtime'] / 60, 2)} minutes used for training.")
trainer.save_model(output_dir)
