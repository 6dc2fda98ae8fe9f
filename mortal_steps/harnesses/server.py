"""`PolicyServer`: the endpoint that a harness asks."""

import asyncio
import hashlib
import json
import queue
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.rollout.http.dialects import Body, ChatCompletions, SeveralCompletions
from mortal_steps.rollout.http.endpoint import (
    MOST_SEED,
    answer_of,
    check_followed,
    number_in,
    rendered,
    sampling_params,
)
from mortal_steps.rollout.http.messages import Answer, Asked, RefusedError
from mortal_steps.rollout.http.server import Server
from mortal_steps.schedule import derive_seed
from mortal_steps.types import PolicyVersion, Prompt, SamplingParams

LARGEST_REQUEST = 4096
"""Completions of one request."""


@dataclass(frozen=True, kw_only=True)
class _Asking:
    """Completions to sample together."""

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[int]
    params: SamplingParams
    done: Future[list[SampledTokens]] = field(default_factory=Future)


class PolicyServer(Server):
    """Answers each request alone, in the order in which they come, by the engine of the thread that
    calls `answer_until`."""

    def __init__(
        self,
        engine: Engine,
        version: PolicyVersion,
        tokenizer: Any,
        render: Callable[[Prompt], Sequence[int]],
        *,
        seed: int,
        max_tokens: int,
        lowest_temperature: float,
    ) -> None:
        """`render` makes the tokens of a text or a chat; `max_tokens` is the default of a request,
        `lowest_temperature` the lowest one above 0 at which the engine samples."""
        self._engine, self._version, self._tokenizer = engine, version, tokenizer
        self._render, self._seed, self._max_tokens = render, seed, max_tokens
        self._lowest_temperature = lowest_temperature
        self._asking: queue.Queue[_Asking | None] = queue.Queue()
        self._asked: Counter[str] = Counter()
        self.num_completions = self.num_tokens = 0
        super().__init__(
            (SeveralCompletions(), ChatCompletions()),
            (0,),
            num_ids=1 + max(tokenizer.get_vocab().values()),
            token_text=lambda token_id: str(tokenizer.decode([token_id])),
        )

    def answer_until(self, ended: Future[Any], timeout_s: float) -> bool:
        """Answer requests until the harness has ended. Returns False if it neither asks nor ends in
        `timeout_s`."""
        ended.add_done_callback(lambda _: self._asking.put(None))
        while not ended.done():
            try:
                found = self._asking.get(timeout=timeout_s)
            except queue.Empty:
                return ended.done()
            if found is not None:
                self._sample(found)
        return True

    def _sample(self, asking: _Asking) -> None:
        try:
            sampled = self._engine.sample(asking.prompts, asking.seeds, asking.params)
        except Exception as error:
            asking.done.set_exception(RefusedError(f"{error}", code="internal", status=500))
            raise
        self.num_completions += len(sampled)
        self.num_tokens += sum(len(each.token_ids) for each in sampled)
        asking.done.set_result(sampled)

    async def _answers(self, asked: Asked, caller: None, body: Body) -> Sequence[Answer]:
        check_followed(body)
        given = [each.ids or rendered(each, self._render) for each in asked.several or (asked,)]
        count = number_in(body, "n", 1, 1, LARGEST_REQUEST)
        prompts = [ids for ids in given for _ in range(count)]
        if len(prompts) > LARGEST_REQUEST:
            raise RefusedError(
                f"the request asks for {len(prompts)} completions, and {LARGEST_REQUEST} are the "
                "most; ask several times"
            )
        said = {name: value for name, value in body.items() if value is not None}
        limits, longest = {"max_tokens": self._max_tokens, **said}, self._engine.max_model_len
        # A long prompt takes no room from the others.
        by_room: dict[SamplingParams, list[int]] = {}
        for number, ids in enumerate(prompts):
            room = longest - len(ids)
            params = sampling_params(limits, room=room, coldest=self._lowest_temperature)
            by_room.setdefault(params, []).append(number)
        seeds, answers = self._seeds(body, prompts), dict[int, Answer]()
        for params, numbers in by_room.items():
            asking = _Asking(
                prompts=[prompts[number] for number in numbers],
                seeds=[seeds[number] for number in numbers],
                params=params,
            )
            self._asking.put(asking)
            sampled = await asyncio.wrap_future(asking.done)
            for number, tokens in zip(numbers, sampled, strict=True):
                answers[number] = answer_of(
                    tokens, prompts[number], self._tokenizer, self._version, params.stop
                )
        return [answers[number] for number in range(len(prompts))]

    def _seeds(self, body: Body, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Return a seed for each completion: it follows from its prompt and how it is asked for, so
        that no two draw alike. A request with a `seed` that comes again has the same, any other has
        new ones."""
        first = number_in(body, "seed", -1, 0, MOST_SEED)
        counted = Counter[str]() if first >= 0 else self._asked
        how = {name: each for name, each in body.items() if name not in ("prompt", "messages")}
        seeds = []
        for ids in prompts:
            asked = json.dumps([how, list(ids)], sort_keys=True)
            digest = hashlib.sha256(asked.encode()).hexdigest()
            counted[digest] += 1
            seeds.append(derive_seed("harness", self._seed, digest, counted[digest]))
        return seeds
