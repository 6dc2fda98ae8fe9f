"""What judges were paid, made up."""

from mortal_steps.rewards.judge.ledger import Payment


def payment(question: str, score: float | None, dollars: float = 0.5) -> Payment:
    return Payment(
        question=question,
        score=score,
        reason="ein Grund: \ud83d",
        model="m",
        prompt_tokens=100,
        completion_tokens=20,
        dollars=dollars,
    )
