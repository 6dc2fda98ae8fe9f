"""Let a language model judge completions: polite answers to short complaints.

    OPENAI_API_KEY=... python examples/judge.py
    python examples/judge.py --base_url http://127.0.0.1:8000/v1 --judge my-model

Every answer of the judge is kept in the run directory, so a run that is killed and continued pays
for no question twice. What the judge does not answer is never scored 0: it is asked again, and then
the run stops with its state saved.
"""

from __future__ import annotations

import argparse

from mortal import MortalTrainer, SingleNode
from mortal.rewards.examples import LLMJudgeEnvironment

COMPLAINTS = [
    "My parcel is a week late.",
    "The soup was cold.",
    "Nobody picks up your telephone.",
    "I was charged twice this month.",
    "The jacket lost a button on its first day.",
    "Your website forgets my address.",
    "The train left before its time.",
    "The new update deleted my photos.",
]
RUBRIC = (
    "The completion answers a customer's complaint. A 10 is polite, takes up this very complaint "
    "and names a next step in at most two sentences; a 0 is rude or has nothing to do with it."
)


def brief(completions: list[list[dict[str, str]]], **kwargs: object) -> list[float]:
    """1 up to 200 characters, and less the longer it is."""
    return [min(1.0, 200 / max(1, len(completion[0]["content"]))) for completion in completions]


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO with a language model as the judge.")
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct", help="which is trained")
    parser.add_argument("--judge", default="gpt-4o-mini", help="which scores")
    parser.add_argument("--base_url", help="of the judge; default: OPENAI_BASE_URL, or OpenAI")
    parser.add_argument("--max_cost", type=float, default=2.0, help="for judging, in dollars")
    parser.add_argument("--max_steps", type=int, default=50)
    parser.add_argument("--max_tokens", type=int, default=96)
    parser.add_argument("--run_id")
    parser.add_argument("--runs_dir", default="runs")
    options = parser.parse_args()

    judge = LLMJudgeEnvironment(
        model=options.judge,
        score_range=(0, 10),
        rubric=RUBRIC,
        base_url=options.base_url,
        prices={"input": 0.15, "output": 0.6},  # dollars per million tokens, of gpt-4o-mini
        concurrency=8,
    )
    trainer = MortalTrainer(
        model=options.model,
        mode=SingleNode(),
        reward_funcs=[judge, brief],
        reward_weights=[0.1, 0.2],
        train_dataset=[{"prompt": [{"role": "user", "content": one}]} for one in COMPLAINTS],
        batch_size=4,
        num_generations=4,
        max_steps=options.max_steps,
        max_completion_length=options.max_tokens,
        max_tokens=options.max_tokens,
        run_id=options.run_id,
        runs_dir=options.runs_dir,
        config={"compute.modal.max_cost": options.max_cost, "rewards.on_error": "raise"},
    )
    print(trainer.train())


if __name__ == "__main__":
    main()
