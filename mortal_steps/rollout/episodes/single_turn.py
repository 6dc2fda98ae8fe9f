"""`single_turn`: the model answers each prompt once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from mortal_steps.rollout import responses
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.episodes.base import Episodes
from mortal_steps.rollout.prompts import check_lengths, tokenize_prompts
from mortal_steps.types import Completion, GeneratedGroup, PolicyVersion, Problem, SamplingParams


class SingleTurn(Episodes):
    """Samples all completions of a shard in one batch."""

    def sample(
        self,
        engine: Engine,
        problems: Sequence[Problem],
        seeds_PG: Sequence[Sequence[int]],
        params: SamplingParams,
        version: PolicyVersion,
    ) -> list[GeneratedGroup]:
        """See `Episodes.sample`."""
        prompts_ids = tokenize_prompts(problems, self.tokenizer, self.template_options)
        check_lengths(
            problems,
            prompts_ids,
            max_tokens=params.max_tokens,
            max_model_len=engine.max_model_len,
        )
        rows = [
            (problem, prompt_ids, seed)
            for problem, prompt_ids, seeds in zip(problems, prompts_ids, seeds_PG, strict=True)
            for seed in seeds
        ]
        sampled = engine.sample(
            [prompt_ids for _, prompt_ids, _ in rows], [seed for *_, seed in rows], params
        )
        texts = self.tokenizer.batch_decode(
            [tokens.token_ids for tokens in sampled], skip_special_tokens=True
        )
        completions = iter(
            [
                Completion(
                    token_ids=tokens.token_ids,
                    logprobs=tokens.logprobs,
                    text=text,
                    finish_reason=tokens.finish_reason,
                    seed=seed,
                    policy_version=version,
                    message=self.message_of(problem, prompt_ids, tokens.token_ids),
                )
                for (problem, prompt_ids, seed), tokens, text in zip(
                    rows, sampled, texts, strict=True
                )
            ]
        )
        return [
            GeneratedGroup(
                problem=problem,
                prompt_ids=prompt_ids,
                completions=list(itertools.islice(completions, len(seeds))),
            )
            for problem, prompt_ids, seeds in zip(problems, prompts_ids, seeds_PG, strict=True)
        ]

    def message_of(
        self, problem: Problem, prompt_ids: Sequence[int], token_ids: Sequence[int]
    ) -> dict[str, Any] | None:
        """Return what the tokenizer makes of a chat's completion, where it can."""
        if isinstance(problem.prompt, str) or not responses.can_parse(self.tokenizer):
            return None
        return responses.parse(self.tokenizer, token_ids, prompt_ids)
