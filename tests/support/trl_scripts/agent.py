"""Environments and a tool, with a reward function that looks at the environments."""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

BONUS = 0.25


class Shop:
    """Counts up to a target."""

    def reset(self, target: int, **row) -> str:
        self.total, self.target = 0, target
        return f"Reach {target}."

    def add(self, amount: int) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
        """
        self.total += amount
        return f"total {self.total}"

    def get_reward(self) -> float:
        return float(self.total == self.target) + BONUS


class Silent:
    def reset(self, **row) -> None:
        return None


def double(amount: int) -> int:
    """Double an amount.

    Args:
        amount: What to double.
    """
    return 2 * amount


def near(environments, completions, **kwargs):
    return [
        None if isinstance(one, Silent) else -float(abs(one.total - one.target))
        for one in environments
    ]


trainer = GRPOTrainer(
    model="agent",
    reward_funcs=near,
    args=GRPOConfig(
        output_dir="agent-GRPO",
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=16,
        max_steps=2,
        max_tool_calling_iterations=2,
        bf16=False,
    ),
    train_dataset=Dataset.from_dict(
        {"target": [1, 2, 3, 4], "environment": ["shop", "silent", "shop", "shop"]}
    ),
    environment_factory={"shop": Shop, "silent": Silent},
    tools=[double],
)
trainer.train()
