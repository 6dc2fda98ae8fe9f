"""Checks that a completion can be trained on: its tokens, logprobs and turns have to fit
together."""

from mortal_steps.errors import EngineError
from mortal_steps.types import Completion


def check_trainable(completion: Completion, *, origin: str, problem_id: str) -> None:
    """Raise `EngineError` that begins with `origin` if it cannot be trained on."""
    wrong = what_is_wrong(completion)
    if wrong:
        raise EngineError(f"{origin}: a completion of {problem_id} {wrong}")


def what_is_wrong(completion: Completion) -> str | None:
    """Return why a completion cannot be trained on; None if it can."""
    return _mismatch(completion) or _wrong_turns(completion) or _wrong_messages(completion)


def _mismatch(completion: Completion) -> str | None:
    num_tokens, num_logprobs = len(completion.token_ids), len(completion.logprobs)
    if num_tokens == num_logprobs and num_tokens:
        return None
    return f"has {num_tokens} tokens and {num_logprobs} logprobs; it needs as many, at least one"


def _wrong_turns(completion: Completion) -> str | None:
    """Return what is wrong with the turns: their spans, or logprobs outside of them."""
    if not completion.turns:
        return None
    num_tokens, end = len(completion.token_ids), 0
    for turn in completion.turns:
        if turn.start == turn.stop and completion.has_failed:
            continue
        if not end <= turn.start < turn.stop <= num_tokens:
            return (
                f"has a turn of the tokens [{turn.start}, {turn.stop}); turns follow each other, "
                f"each of at least one token, and this one may lie in [{end}, {num_tokens})"
            )
        if any(completion.logprobs[end : turn.start]):
            return _unsampled(end, turn.start)
        end = turn.stop
    return _unsampled(end, num_tokens) if any(completion.logprobs[end:]) else None


def _wrong_messages(completion: Completion) -> str | None:
    """Return what is wrong with an episode's messages: each turn says one."""
    if completion.episode is None:
        return None
    said = sum(message.get("role") == "assistant" for message in completion.messages)
    if said == len(completion.turns):
        return None
    return f"has {len(completion.turns)} turns, in which {said} messages were said"


def _unsampled(start: int, stop: int) -> str:
    return (
        f"has logprobs other than 0.0 among the tokens [{start}, {stop}), which are in none of its "
        "turns: an environment's, that nobody sampled"
    )
