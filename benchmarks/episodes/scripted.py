"""A model that calls: it samples as it does, and says what stands in a script."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.types import SamplingParams

NUM_CALLS, TURN_TOKENS = 4, 32
"""Of an episode by default, and tokens that are really sampled for a turn."""
PROMPT = [{"role": "user", "content": "Fill the basket."}]
WHO = re.compile(r'"who": "(\d+)"')
CALL = '<tool_call>\n{{"name": "add", "arguments": {{"amount": {}, "who": "{}"}}}}\n</tool_call>'


def script(num_calls: int, row: int, turn: int) -> str:
    """Return what the episode in a row of the batch says: every second one makes a mistake."""
    if turn == num_calls:
        return "Done.<|im_end|>"
    return CALL.format(1 + (row % 2) * (turn == 0), row) + "<|im_end|>"


class ScriptedEngine(TransformersEngine):
    """The transformers engine, but for what it says. `busy_s` is what it took."""

    num_calls = NUM_CALLS
    samples = True
    """Whether it samples, too."""
    busy_s = 0.0

    def sample(
        self, prompts_ids: Sequence[Sequence[int]], seeds: Sequence[int], params: SamplingParams
    ) -> list[SampledTokens]:
        began = time.perf_counter()
        if self.samples:
            super().sample(prompts_ids, seeds, SamplingParams(max_tokens=TURN_TOKENS))
        said = [self._turn(row, list(ids)) for row, ids in enumerate(prompts_ids)]
        self.busy_s += time.perf_counter() - began
        return said

    def _turn(self, row: int, prompt_ids: list[int]) -> SampledTokens:
        turn = prompt_ids.count(self._tokenizer.convert_tokens_to_ids("<tool_response>"))
        if turn:
            row = int(WHO.findall(self._tokenizer.decode(prompt_ids))[0])
        ids = self._tokenizer.encode(script(self.num_calls, row, turn), add_special_tokens=False)
        return SampledTokens(token_ids=ids, logprobs=[-1.0] * len(ids), finish_reason="stop")
