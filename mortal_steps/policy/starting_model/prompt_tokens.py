"""What the tokens of prompts give away before a run begins: the date, special tokens."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mortal_steps.types import Prompt


class Clock:
    """The `strftime_now` of chat templates, which notes that one has asked for the time."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, form: str) -> str:
        self._asked = True
        return datetime.datetime.now().strftime(form)

    def take(self) -> bool:
        """Return whether it was asked since the last call."""
        asked, self._asked = self._asked, False
        return asked


class SpecialTokens:
    """Looks for special tokens where a text should have none. A chat has those of its template."""

    def __init__(self, tokenizer: Any) -> None:
        self.first: Sequence[int] = ()
        """The first prompt."""
        self._tokenizer = tokenizer
        self._count = self._ended = self._begun_twice = 0

    def look_at(self, prompts: Iterable[Prompt], rendered: Iterable[Sequence[int]]) -> None:
        """Look at the tokens of these prompts."""
        end, begin = self._tokenizer.eos_token_id, self._tokenizer.bos_token_id
        for prompt, ids in zip(prompts, rendered, strict=True):
            self.first = self.first or ids
            if not isinstance(prompt, str):
                continue
            self._count += 1
            self._ended += len(ids) > 1 and ids[-1] == end
            self._begun_twice += begin is not None and list(ids[:2]) == [begin, begin]

    def warnings(self) -> Iterator[str]:
        """Yield a sentence on each thing found."""
        of = f"of {self._count:,} prompts"
        if self._ended:
            yield (
                f"{self._ended:,} {of} end with {self._tokenizer.eos_token!r}, the token that ends "
                "a completion, so the model reads each as a text that is over. The tokenizer adds "
                "it (add_eos_token in tokenizer_config.json), or the text holds it; remove it "
                "there (as in TRL, prompts are left as they are)"
            )
        if self._begun_twice:
            yield (
                f"{self._begun_twice:,} {of} begin with {self._tokenizer.bos_token!r} twice, which "
                "models are not trained on: the text is a rendered chat template, to which the "
                "tokenizer adds the token again. Give chat messages, which MORTAL renders, or "
                "remove it from the text (as in TRL, prompts are left as they are)"
            )
