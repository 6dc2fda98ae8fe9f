"""A teacher by vLLM, which computes log-probabilities of prompts.

vLLM scales no prompt by a temperature (`prompt_logprobs`), so completions are sampled at 1 where it
teaches. The engine is in this process: what it says of a shard depends on that shard alone.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.models.hub import model_folder
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teachers import Teacher, Tokens
from mortal_steps.rewards.token_logprobs import TokenLogprobs


class VllmTeacher(Teacher):
    """A model that vLLM computes; its `engine_options` are arguments of `vllm.LLM`."""

    def __init__(self, term: TeacherTerm) -> None:
        super().__init__(term)
        self.at_once = sys.maxsize  # vLLM batches by itself
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm

        self._vllm = vllm
        own = {
            "dtype": term.model.dtype,
            "trust_remote_code": term.model.trust_remote_code,
            "max_logprobs": term.top_k,
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "seed": 0,
        }
        try:
            folder = model_folder(term.model.name_or_path, term.model)
            self._llm = vllm.LLM(folder, **(own | dict(term.engine_options)))
        except Exception as error:
            raise RewardError(f"{self.called}: vLLM does not load it: {error}") from error
        config = self._llm.llm_engine.model_config
        # It samples a token after each prompt, for which there is to be room.
        self._context = config.max_model_len - 1
        self._num_tokens = self.num_tokens(config.get_vocab_size())

    def say(self, sequences: Sequence[Tokens]) -> list[TokenLogprobs]:
        asked = [{"prompt_token_ids": [*prompt, *made]} for prompt, made in sequences]
        for each in asked:
            self.check_length(len(each["prompt_token_ids"]), self._context)
        options = self._vllm.SamplingParams(
            max_tokens=1, prompt_logprobs=self.term.top_k, detokenize=False
        )
        outputs = self._llm.generate(asked, options, use_tqdm=False)
        return [
            self._of_positions(output.prompt_logprobs[len(prompt) :], made)
            for output, (prompt, made) in zip(outputs, sequences, strict=True)
        ]

    def _of_positions(
        self, positions: Sequence[Mapping[int, Any]], completion: Sequence[int]
    ) -> TokenLogprobs:
        # Imported where used, as torch is: after vLLM has set what it reads.
        import numpy

        width = self.term.top_k
        top = numpy.full((len(completion), width), -math.inf, "f4")
        ids = numpy.zeros((len(completion), width), "i4")
        for row, position in enumerate(positions):
            known = sorted(
                (each.rank, token, each.logprob)
                for token, each in position.items()
                if token < self._num_tokens
            )[:width]
            for column, (_, token, logprob) in enumerate(known):
                ids[row, column], top[row, column] = token, logprob
        sampled = numpy.array(
            [each[token].logprob for each, token in zip(positions, completion, strict=True)], "f4"
        )
        if numpy.isnan(sampled).any():
            raise self.no_numbers()
        return TokenLogprobs(sampled_T=sampled, top_TK=top, top_ids_TK=ids)
