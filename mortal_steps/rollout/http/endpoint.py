"""`Endpoint`: what environments outside of the run sample from.

A rollout worker serves it beside its other work. Requests that wait are sampled together. Before
the run's weights are there and verified, and while they are replaced, requests are answered 503,
with Retry-After; those that were taken before are sampled with the new ones. Log-probabilities are
those of the whole vocabulary at the request's temperature, which a trainer computes again.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mortal_steps.errors import ConfigError
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.rollout.http.dialects import Body, ChatCompletions, Completions, Generate
from mortal_steps.rollout.http.messages import Answer, Asked, RefusedError
from mortal_steps.rollout.http.server import Server
from mortal_steps.types import PolicyVersion, Prompt, SamplingParams

logger = logging.getLogger(__name__)

Number = TypeVar("Number", int, float)

MOST_AT_ONCE = 256
"""Completions that are sampled together, at most."""
GATHERING_S = 0.005
"""Seconds that a first request waits for others to be sampled with."""
RETRY_AFTER_S = 1
"""Seconds after which a client that was told 503 asks again."""
MOST_SEED = 2**62
# fmt: off
NOT_FOLLOWED = (
    "echo", "tools", "functions", "response_format", "logit_bias", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "structured_outputs", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "best_of", "suffix", "stop_token_ids", "min_tokens",
    "ignore_eos", "bad_words", "allowed_token_ids",
)
# fmt: on
"""Fields of a request that an answer would have to follow, and does not."""
NEUTRAL: Mapping[str, Any] = {
    "response_format": {"type": "text"},
    "repetition_penalty": 1,
    "best_of": 1,
}
"""Their values without an effect, besides what is empty."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Completions of one prompt to sample."""

    prompt_ids: Sequence[int]
    seeds: Sequence[int]
    params: SamplingParams
    done: Future[tuple[list[SampledTokens], PolicyVersion]] = field(default_factory=Future)


class Endpoint(Server):
    """Serves `engine` at the first port of `ports` that is free; raises `ConfigError` if none is.

    `render` makes the tokens of a text or a chat. Nothing is sampled before `holding` has named a
    version.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        render: Callable[[Prompt], list[int]],
        ports: Sequence[int],
        *,
        lowest_temperature: float = 0.0,
    ) -> None:
        """`lowest_temperature` is the lowest one above 0 at which the engine samples."""
        self._lowest_temperature = lowest_temperature
        self._engine, self._tokenizer, self._render = engine, tokenizer, render
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._lock = threading.Lock()
        self._version: PolicyVersion | None = None
        self._left: Job | None = None
        """A job that did not fit the batch sampled last."""
        try:
            super().__init__(
                (Generate(), Completions(), ChatCompletions()),
                ports,
                num_ids=1 + max(tokenizer.get_vocab().values()),
                token_text=lambda token_id: str(tokenizer.decode([token_id])),
            )
        except OSError as error:
            raise ConfigError(
                f"rollout.source_options.port = {ports[0]}: {error.strerror}; another program may "
                "have the port, so choose another one"
            ) from None
        threading.Thread(target=self._sample_all, name="endpoint", daemon=True).start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the engine alone during the block."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Sample nothing during the block, nor after it unless `holding` is called in it."""
        with self.paused():
            self._version = None
            yield

    def holding(self, version: PolicyVersion) -> None:
        """Sample with the weights that the engine holds, which are this version."""
        self._version = version

    def _sample_all(self) -> None:
        while True:
            jobs = self._gathered()
            with self._lock:
                self._sample(jobs)

    def _gathered(self) -> list[Job]:
        """Wait for a job; return it with those that can be sampled beside it."""
        jobs = [self._left or self._jobs.get()]
        self._left = None
        found = len(jobs[0].seeds)
        while found < MOST_AT_ONCE:
            try:
                other = self._jobs.get(timeout=GATHERING_S)
            except queue.Empty:
                break
            if other.params != jobs[0].params:
                self._left = other
                break
            jobs.append(other)
            found += len(other.seeds)
        return jobs

    def _sample(self, jobs: Sequence[Job]) -> None:
        try:
            version = self._held()
            prompts = [job.prompt_ids for job in jobs for _ in job.seeds]
            seeds = [seed for job in jobs for seed in job.seeds]
            sampled = iter(self._engine.sample(prompts, seeds, jobs[0].params))
            for job in jobs:
                job.done.set_result((list(itertools.islice(sampled, len(job.seeds))), version))
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            logger.warning("%d requests are not answered: %r", len(jobs), error)
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error)

    def _held(self) -> PolicyVersion:
        if self._version is None:
            raise RefusedError(
                "the policy's weights are being loaded",
                code="unavailable",
                status=503,
                retry_after_s=RETRY_AFTER_S,
            )
        return self._version

    def _more_routes(self) -> Iterable[Route]:
        return Route("/health", self._health), Route("/bridge/info", self._info)

    async def _health(self, request: Request) -> Response:
        return Response(status_code=503 if self._version is None else 200)

    async def _info(self, request: Request) -> Response:
        return JSONResponse({"weight_version": self._version})

    async def _answers(self, asked: Asked, caller: None, body: Body) -> Sequence[Answer]:
        self._held()
        check_followed(body)
        prompt_ids = asked.ids or rendered(asked, self._render)
        room = self._engine.max_model_len - len(prompt_ids)
        params = sampling_params(body, room=room, coldest=self._lowest_temperature)
        job = Job(prompt_ids=prompt_ids, seeds=_seeds(body), params=params)
        self._jobs.put(job)
        sampled, version = await asyncio.wrap_future(job.done)
        stops = () if body.get("include_stop_str_in_output") else params.stop
        return [answer_of(each, prompt_ids, self._tokenizer, version, stops) for each in sampled]


def answer_of(
    sampled: SampledTokens,
    prompt_ids: Sequence[int],
    tokenizer: Any,
    version: PolicyVersion,
    stops: Sequence[str],
) -> Answer:
    """Return what was sampled as an answer, whose text ends before the first of the `stops`."""
    text = str(tokenizer.decode(sampled.token_ids, skip_special_tokens=True))
    ends = [text.find(stop) for stop in stops if stop in text]
    text = text[: min(ends, default=len(text))]
    return Answer(
        name=secrets.token_hex(8),
        message={"role": "assistant", "content": text},
        prompt_ids=prompt_ids,
        token_ids=sampled.token_ids,
        logprobs=sampled.logprobs,
        text=text,
        finish_reason=sampled.finish_reason,
        version=version,
    )


def rendered(asked: Asked, render: Callable[[Prompt], Sequence[int]]) -> Sequence[int]:
    """Return the tokens of a text or a chat; raise `RefusedError` where there are none."""
    try:
        return render(asked.text or [dict(each) for each in asked.messages])
    except Exception as error:  # noqa: BLE001 - whatever the template raises for the messages
        raise RefusedError(
            f"the prompt cannot be rendered: {type(error).__name__}: {error}"
        ) from None


def check_followed(body: Body) -> None:
    """Raise `RefusedError` for a field that the answer would have to follow, and does not."""
    for name in NOT_FOLLOWED:
        value = body.get(name)
        if value and value != NEUTRAL.get(name):
            raise RefusedError(f"`{name}` is {value!r:.80}, which is not done here")


def _seeds(body: Body) -> list[int]:
    """Return a seed for each completion that is asked for."""
    count = number_in(body, "n", 1, 1, MOST_AT_ONCE)
    first = number_in(body, "seed", -1, 0, MOST_SEED)
    return [secrets.randbits(62) if first < 0 else first + i for i in range(count)]


def sampling_params(body: Body, *, room: int, coldest: float) -> SamplingParams:
    """Return how a request wants to have sampled, within the room that the model's context has, at
    temperature 0 or `coldest` or more."""
    if room < 1:
        raise RefusedError("the prompt fills the model's context")
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise RefusedError("`stop` is neither a text nor a list of texts")
    temperature = number_in(body, "temperature", 1.0, 0, 2)
    if 0 < temperature < coldest:
        raise RefusedError(
            f"`temperature` is {temperature!r}: the engine samples at {coldest:g} or more, or at 0"
        )
    return SamplingParams(
        max_tokens=min(number_in(body, name, room, 1, math.inf), room),
        temperature=temperature,
        top_p=number_in(body, "top_p", 1.0, 1e-6, 1),
        top_k=max(0, number_in(body, "top_k", 0, -1, math.inf)),  # vLLM's -1 keeps all, too
        min_p=number_in(body, "min_p", 0.0, 0, 1),
        stop=tuple(stops),
    )


def number_in(body: Body, name: str, default: Number, least: float, most: float) -> Number:
    """Return a number of a request, which is whole if the default is."""
    value = body.get(name)
    if value is None:
        return default
    whole = isinstance(default, int)
    if type(value) not in ((int,) if whole else (int, float)) or not least <= value <= most:
        span = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        raise RefusedError(
            f"`{name}` is {value!r}, and has to be a {'whole ' if whole else ''}number {span}"
        )
    return type(default)(value)
