"""A client of OpenAI-compatible servers: it sends requests and reads the answers.

The API is https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from mortal_steps.data.kept import find_train_problems
from mortal_steps.errors import EngineError
from mortal_steps.runs.run import Run

PATIENCE_S = 600.0
"""Seconds to wait for the next piece of an answer."""
LONGEST_EXAMPLE = 200
"""Characters of the longest prompt that is shown as an example."""
KEY_VARIABLE = "MORTAL_SERVE_KEY"
"""Environment variable with the key that is sent as `Authorization: Bearer`."""
PROXY_VARIABLES = {"Modal-Key": "MODAL_PROXY_KEY", "Modal-Secret": "MODAL_PROXY_SECRET"}
"""Header -> environment variable with its value, for a proxy auth token of Modal."""

Message = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """How prompts are sent to a model, by default as they were in training."""

    chat: bool = True
    """Whether prompts are chat messages. Otherwise they are texts, which the model continues."""
    system: str | None = None
    """The system prompt of the run's first problem."""
    max_tokens: int | None = None
    """Tokens of the longest answer; None: the server decides."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer."""
    template_options: Mapping[str, Any] | None = None
    """Options for the chat template."""


def manner_of(run: Run) -> Manner:
    """How the run's own problems were sent to the model. Raises `StoreError` if the run has no
    problems."""
    prompt, config = find_train_problems(run.store)[0].prompt, run.config
    first = {} if isinstance(prompt, str) else prompt[0]
    return Manner(
        chat=not isinstance(prompt, str),
        system=str(first["content"]) if first.get("role") == "system" else None,
        max_tokens=config.max_tokens,
        stop=config.rollout.stop,
        template_options=config.training.template_options or None,
    )


def changed(manner: Manner, *, plain: bool | None, max_tokens: int | None) -> Manner:
    """The same with the user's changes; None leaves a setting as it is."""
    return replace(
        manner,
        chat=manner.chat if plain is None else not plain,
        max_tokens=max_tokens or manner.max_tokens,
    )


def request_of(
    manner: Manner, model: str, asked: Sequence[Message], *, temperature: float
) -> tuple[str, dict[str, Any]]:
    """The path below the base URL and the JSON body of a request.

    `asked` is a conversation that ends with a message of the user. For a model that continues
    texts, only the last message is sent.
    """
    body: dict[str, Any] = {"model": model, "temperature": temperature, "stream": True}
    if manner.max_tokens is not None:
        body["max_tokens"] = manner.max_tokens
    if manner.stop:
        body["stop"] = list(manner.stop)
    if not manner.chat:
        return "/completions", {**body, "prompt": asked[-1]["content"]}
    if manner.template_options:
        body["chat_template_kwargs"] = dict(manner.template_options)
    system = [{"role": "system", "content": manner.system}] if manner.system else []
    return "/chat/completions", {**body, "messages": [*system, *asked]}


def example_of(run: Run, model: str) -> tuple[str, dict[str, Any]]:
    """Path and body of an example request: the run's first problem, or one word if its prompt is
    longer than `LONGEST_EXAMPLE`."""
    prompt, manner = find_train_problems(run.store)[0].prompt, manner_of(run)
    content = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
    said = content if len(content) <= LONGEST_EXAMPLE else "Hello"
    path, body = request_of(manner, model, [{"role": "user", "content": said}], temperature=0.0)
    del body["stream"]
    return path, body


class Client:
    """A client of one server. `url` ends with /v1; if a query follows, it is sent with every
    request."""

    def __init__(self, url: str) -> None:
        self.url, query = split_query(url)
        self._http = httpx.Client(
            headers=headers_of(os.environ),
            params=query,
            timeout=httpx.Timeout(PATIENCE_S, connect=10.0),
        )

    def models(self) -> list[str]:
        """Names of the models that the server offers. Raises `EngineError` if no
        OpenAI-compatible server answers, or if the server refuses."""
        try:
            response = self._http.get(f"{self.url}/models")
            if response.is_success:
                return [str(model["id"]) for model in response.json()["data"]]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"no OpenAI-compatible server answers at {self.url}: {error}"
            ) from error
        raise EngineError(_refused(self.url, response))

    def ask(self, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Send a request. Yields the pieces of the answer as they arrive. Raises `EngineError` if
        the server refuses, fails or closes the connection."""
        try:
            with self._http.stream("POST", self.url + path, json=body) as response:
                if not response.is_success:
                    response.read()
                    raise EngineError(_refused(self.url, response))
                for line in response.iter_lines():
                    yield from pieces(line)
        except httpx.HTTPError as error:
            raise EngineError(f"the connection to {self.url} failed: {error}") from error


def split_query(url: str) -> tuple[str, str]:
    """The base URL without its final slash, and the query that selects a model there, if any."""
    base, _, query = url.partition("?")
    return base.rstrip("/"), query


def headers_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The headers that authorize a client, from the environment variables that are set."""
    given = {header: environment.get(name) for header, name in PROXY_VARIABLES.items()}
    key = environment.get(KEY_VARIABLE)
    given["Authorization"] = f"Bearer {key}" if key else None
    return {header: value for header, value in given.items() if value}


def pieces(line: str) -> Iterator[str]:
    """The texts in one line of a streamed answer. Raises `EngineError` if the line reports an
    error."""
    if not line.startswith("data:") or line == "data: [DONE]":
        return
    event = json.loads(line.removeprefix("data:"))
    if event.get("error"):
        raise EngineError(f"the server failed: {event['error']}")
    for choice in event.get("choices", ()):
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text:
            yield str(text)


def _refused(url: str, response: httpx.Response) -> str:
    remedy = ""
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        names = " and ".join(PROXY_VARIABLES.values())
        remedy = f"; set {KEY_VARIABLE}, or for an endpoint on Modal {names}"
    return f"{url} refused with status {response.status_code}: {response.text[:500]}{remedy}"
