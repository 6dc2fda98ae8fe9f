"""A teacher by vLLM. What imports this starts an engine, in a process of its own.

What it says of a completion is a function of the tokens alone, as long as `batch_size` is 1 and
vLLM has the same kernels: a sequence is then computed alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from mortal_steps.errors import EngineError, RewardError
from mortal_steps.models.hub import model_folder
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teachers import Teacher, Tokens
from mortal_steps.rewards.token_logprobs import TokenLogprobs
from mortal_steps.users_code.loading import import_code

SCORER = "mortal_steps.rollout.engines.vllm.scorer:VllmScorer"


class VllmTeacher(Teacher):
    """A model that vLLM computes."""

    def __init__(self, term: TeacherTerm) -> None:
        super().__init__(term)
        folder = model_folder(term.model.name_or_path, term.model)
        make: Any = import_code(SCORER, "algorithm.teachers")
        with self._naming_its_options():
            self._scorer = make(
                folder, term.model, temperature=term.temperature, options=term.engine_options
            )
        self._check_device()
        self._num_tokens = self.num_tokens(self._scorer.vocabulary)
        with self._naming_its_options():
            self._scorer.start()

    @contextlib.contextmanager
    def _naming_its_options(self) -> Iterator[None]:
        try:
            yield
        except EngineError as error:
            raise RewardError(
                f"{self.called}: {error}\nOptions of vLLM are changed by "
                f"algorithm.teachers.{self.term.teacher}.engine_options"
            ) from error

    def _check_device(self) -> None:
        if self._scorer.on_cpu is not self.term.needs_gpu:
            return
        where, device = ("a CPU", "cpu") if self._scorer.on_cpu else ("a GPU", "cuda")
        raise RewardError(
            f"device = {self.term.device!r} of {self.called}: this vLLM computes on {where}; set "
            f"algorithm.teachers.{self.term.teacher}.device = {device!r}, or name an interpreter "
            "with another vLLM in compute.local.rollout.python"
        )

    def say(self, sequences: Sequence[Tokens]) -> list[TokenLogprobs]:
        whole = [([*prompt, *completion], len(prompt)) for prompt, completion in sequences]
        longest = max(len(ids) for ids, _ in whole)
        self.check_length(longest, self.term.longest(self._scorer.max_model_len))
        found = self._scorer.score(whole, self.term.top_k)
        padded = [n for n, each in enumerate(found) if (each.top_ids_TK >= self._num_tokens).any()]
        if padded:  # among more there are as many that it can name
            more = self.term.top_k + self._scorer.vocabulary - self._num_tokens
            again = self._scorer.score([whole[number] for number in padded], more)
            for number, each in zip(padded, again, strict=True):
                found[number] = each
        return [self._named(each) for each in found]

    def _named(self, scored: Any) -> TokenLogprobs:
        """Return the same with the likeliest of the tokens that it can name."""
        if numpy.isnan(scored.sampled_T).any():
            raise self.no_numbers()
        cannot = scored.top_ids_TK >= self._num_tokens
        kept = numpy.argsort(cannot, axis=1, kind="stable")[:, : self.term.top_k]
        return TokenLogprobs(
            sampled_T=scored.sampled_T,
            top_TK=numpy.take_along_axis(scored.top_TK, kept, axis=1),
            top_ids_TK=numpy.take_along_axis(scored.top_ids_TK, kept, axis=1),
        )
