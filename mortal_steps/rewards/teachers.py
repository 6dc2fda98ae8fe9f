"""What every teacher does, whatever computes: which rows it speaks of, and how it reports."""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.errors import RewardError
from mortal_steps.models.hub import tokenizer_folder
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.token_logprobs import TokenLogprobs

Tokens = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt, and of its completion."""


class Teacher(ABC):
    """Says log-probabilities of tokens; `term` says which model, and of which rows."""

    def __init__(self, term: TeacherTerm) -> None:
        self.term = term
        self.called = f"[algorithm.teachers.{term.teacher}] ({term.model.name_or_path})"

    @abstractmethod
    def say(self, sequences: Sequence[Tokens]) -> list[TokenLogprobs]:
        """Return what it says of each completion."""
        ...

    def __call__(
        self,
        *,
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        log_teacher: Callable[[list[str | None]], None],
        log_metric: Callable[[str, float], None],
        **columns: Any,
    ) -> list[None]:
        """Report what it says of the rows that it teaches, and abstain from scoring all."""
        column = self.term.column
        names = columns[column] if column else [self.term.teacher] * len(prompt_ids)
        rows = [row for row, name in enumerate(names) if name == self.term.teacher]
        said: list[str | None] = [None] * len(prompt_ids)
        for start in range(0, len(rows), self.term.batch_size):
            batch = rows[start : start + self.term.batch_size]
            found = self.say([(prompt_ids[row], completion_ids[row]) for row in batch])
            for row, each in zip(batch, found, strict=True):
                said[row] = base64.b64encode(each.packed()).decode()
                if math.isfinite(mean := float(each.sampled_T.mean())):
                    log_metric(f"{self.term.name}/logprob", mean)
        log_teacher(said)
        return [None] * len(prompt_ids)

    def check_length(self, tokens: int, context: int | None) -> None:
        """Raise `RewardError` for a prompt and a completion that are too long together."""
        if context is not None and tokens > context:
            raise RewardError(
                f"a completion is {tokens} tokens long with its prompt, and {self.called} takes "
                f"{context}; lower rollout.max_tokens or model.max_model_len, or "
                f"{self.term.how_to_take_more}"
            )

    def num_tokens(self, vocabulary: int) -> int:
        """Return how many tokens it can name of a `vocabulary` of this size: those of its
        tokenizer, which are the student's, if it has one. Embeddings may be padded beyond them, and
        those of two models of a family differently. Raises `RewardError` if it is to name more."""
        tokenizer = find_tokenizer(self.term.model)
        count = vocabulary if tokenizer is None else min(vocabulary, len(tokenizer))
        if self.term.top_k > count:
            raise RewardError(
                f"algorithm.loss_top_k = {self.term.top_k}: {self.called} has a vocabulary of "
                f"{count} tokens; choose no more than that"
            )
        return count

    def no_numbers(self) -> RewardError:
        return RewardError(
            f"{self.called} computes log-probabilities that are no numbers; give it another dtype"
        )


def find_tokenizer(model: ModelConfig) -> Any:
    """Return a teacher's tokenizer; None for one that has none, and consists of weights alone."""
    from transformers import AutoTokenizer  # imported where used: takes a moment

    try:
        found = AutoTokenizer.from_pretrained(
            tokenizer_folder(model), trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    made_up = len(found) <= len(found.all_special_ids)  # by transformers, where there are no files
    return None if made_up else found
