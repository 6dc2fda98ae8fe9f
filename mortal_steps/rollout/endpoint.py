"""The policy over HTTP: what environments outside of the run sample from.

A rollout worker serves it beside its other work. Requests that wait are sampled together. Before
the run's weights are there and verified, and while they are replaced, requests are answered 503,
with Retry-After; those that were taken before are sampled with the new ones. `/generate` speaks as
vLLM's own endpoint of that name, `/v1` as OpenAI's API; log-probabilities are those of the whole
vocabulary at the request's temperature, which a trainer computes again.
"""

import asyncio
import contextlib
import itertools
import logging
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mortal_steps.errors import ConfigError
from mortal_steps.rollout.endpoint_requests import RequestError, params_in, prompt_in, seeds_in
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.types import PolicyVersion, Prompt, SamplingParams

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_AT_ONCE = 256
"""Completions that are sampled together."""
GATHERING_S = 0.005
"""How long a first request waits for others to be sampled with."""
RETRY_AFTER_S = 1
"""Seconds after which a request is made again that finds no weights."""
POST = ("POST",)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Completions of one prompt to sample."""

    prompt_ids: Sequence[int]
    seeds: Sequence[int]
    params: SamplingParams
    done: Future[tuple[list[SampledTokens], PolicyVersion]] = field(default_factory=Future)


class Endpoint:
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
        self._num_known = 1 + max(tokenizer.get_vocab().values())
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._lock = threading.Lock()
        self._version: PolicyVersion | None = None
        self._left: Job | None = None
        """A job that did not fit what was sampled last."""
        self._socket = _free_socket(ports)
        self.port: int = self._socket.getsockname()[1]
        routes = [
            Route("/health", self._health),
            Route("/v1/models", self._models),
            Route("/bridge/info", self._info),
            Route("/generate", self._answering(self._generate), methods=POST),
            Route("/v1/completions", self._answering(self._completion), methods=POST),
            Route("/v1/chat/completions", self._answering(self._chat), methods=POST),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="warning", access_log=False, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        for work in (self._sample_all, self._serve):
            threading.Thread(target=work, name="endpoint", daemon=True).start()

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

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

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
            raise RequestError("the policy's weights are being loaded", status=503)
        return self._version

    async def _health(self, request: Request) -> Response:
        return Response(status_code=503 if self._version is None else 200)

    async def _models(self, request: Request) -> Response:
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "mortal"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _info(self, request: Request) -> Response:
        return JSONResponse({"weight_version": self._version})

    def _answering(self, answer: Callable[[Mapping[str, Any]], Any]) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            try:
                body = await request.json()
                if not isinstance(body, Mapping):
                    raise RequestError("the request is no JSON object")
                return JSONResponse(await answer(body))
            except RequestError as error:
                return _refusal(error.status, str(error))
            except (ValueError, TypeError) as error:
                return _refusal(400, f"the request has a value that it cannot have: {error}")
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                return _refusal(500, f"{type(error).__name__}: {error}")

        return handle

    async def _generate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("prompt_logprobs") is not None:
            raise RequestError("prompt_logprobs are not computed here")
        prompt = body.get("prompt")
        prompt_ids = self._prompt_ids(
            prompt.get("prompt_token_ids") if isinstance(prompt, Mapping) else prompt
        )
        sampled, version = await self._asked(prompt_ids, body)
        return {
            "prompt": None if isinstance(prompt, Mapping) else prompt,
            "text": [self._text(each) for each in sampled],
            "finish_reasons": [each.finish_reason for each in sampled],
            "token_ids": [list(each.token_ids) for each in sampled],
            "logprobs": [
                [[{token: lp}] for token, lp in zip(each.token_ids, each.logprobs, strict=True)]
                for each in sampled
            ],
            "prompt_token_ids": list(prompt_ids),
            "weight_version": version,
        }

    async def _completion(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt_ids = self._prompt_ids(body.get("prompt"))
        sampled, _ = await self._asked(prompt_ids, body)
        choices = [{"text": self._text(each)} for each in sampled]
        return _openai("text_completion", body, prompt_ids, sampled, choices)

    async def _chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RequestError("`messages` is no list of messages")
        prompt_ids = self._render(messages)
        sampled, _ = await self._asked(prompt_ids, body)
        choices = [
            {"message": {"role": "assistant", "content": self._text(each)}} for each in sampled
        ]
        return _openai("chat.completion", body, prompt_ids, sampled, choices)

    async def _asked(
        self, prompt_ids: Sequence[int], body: Mapping[str, Any]
    ) -> tuple[list[SampledTokens], PolicyVersion]:
        self._held()
        room = self._engine.max_model_len - len(prompt_ids)
        params = params_in(body, room=room, coldest=self._lowest_temperature)
        seeds = seeds_in(body, most=MOST_AT_ONCE)
        job = Job(prompt_ids=prompt_ids, seeds=seeds, params=params)
        self._jobs.put(job)
        return await asyncio.wrap_future(job.done)

    def _prompt_ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str) and prompt:
            return self._render(prompt)
        return prompt_in(prompt, num_known=self._num_known)

    def _text(self, sampled: SampledTokens) -> str:
        return str(self._tokenizer.decode(sampled.token_ids, skip_special_tokens=True))


def _openai(
    kind: str,
    body: Mapping[str, Any],
    prompt_ids: Sequence[int],
    sampled: Sequence[SampledTokens],
    choices: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    said = sum(len(each.token_ids) for each in sampled)
    return {
        "id": f"{kind}-{secrets.token_hex(8)}",
        "object": kind,
        "created": 0,
        "model": body.get("model") or "policy",
        "choices": [
            {**choice, "index": index, "logprobs": None, "finish_reason": each.finish_reason}
            for index, (choice, each) in enumerate(zip(choices, sampled, strict=True))
        ],
        "usage": {
            "prompt_tokens": len(prompt_ids),
            "completion_tokens": said,
            "total_tokens": len(prompt_ids) + said,
        },
    }


def _refusal(status: int, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def _free_socket(ports: Sequence[int]) -> socket.socket:
    for port in ports:
        try:
            return socket.create_server((HOST, port), backlog=2048)
        except OSError as error:
            last = error
    raise ConfigError(
        f"rollout.source_options.port = {ports[0]}: {last.strerror}; another program may have the "
        "port, so choose another one"
    )
