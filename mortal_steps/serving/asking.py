"""What a client sends to an OpenAI-compatible server, and what it reads."""

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
"""Between two pieces of an answer."""
LONGEST_EXAMPLE = 200
"""Characters of a prompt."""
KEY_VARIABLE = "MORTAL_SERVE_KEY"
"""Environment variable: what is sent as `Authorization: Bearer`."""
PROXY_VARIABLES = {"Modal-Key": "MODAL_PROXY_KEY", "Modal-Secret": "MODAL_PROXY_SECRET"}
"""Environment variables of a proxy auth token of Modal's, by the header that it goes in."""

Message = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """How a run's model is asked: as it was in training."""

    chat: bool = True
    """Whether prompts are chat messages; a text is continued as it stands."""
    system: str | None = None
    """The system prompt of the run's first problem."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    template_options: Mapping[str, Any] | None = None


def manner_of(run: Run) -> Manner:
    """As the run's own problems ask; raises `StoreError` if it has none."""
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
    """The same, but for what the user says."""
    return replace(
        manner,
        chat=manner.chat if plain is None else not plain,
        max_tokens=max_tokens or manner.max_tokens,
    )


def request_of(
    manner: Manner, model: str, asked: Sequence[Message], *, temperature: float
) -> tuple[str, dict[str, Any]]:
    """Path below the base URL, and the body: `asked` is a conversation that ends with the user.

    Where the model continues texts, only the last message counts.
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
    """Path and body of a request for the run's first problem, or for a word where that is long."""
    prompt, manner = find_train_problems(run.store)[0].prompt, manner_of(run)
    content = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
    said = content if len(content) <= LONGEST_EXAMPLE else "Hello"
    path, body = request_of(manner, model, [{"role": "user", "content": said}], temperature=0.0)
    del body["stream"]
    return path, body


class Client:
    """Asks one server; `url` ends with /v1, and a query after it goes with every request."""

    def __init__(self, url: str) -> None:
        self.url, query = split_query(url)
        self._http = httpx.Client(
            headers=headers_of(os.environ),
            params=query,
            timeout=httpx.Timeout(PATIENCE_S, connect=10.0),
        )

    def models(self) -> list[str]:
        """Names that the server knows; raises `EngineError`."""
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
        """Pieces of the answer, as they come; raises `EngineError`."""
        try:
            with self._http.stream("POST", self.url + path, json=body) as response:
                if not response.is_success:
                    response.read()
                    raise EngineError(_refused(self.url, response))
                for line in response.iter_lines():
                    yield from pieces(line)
        except httpx.HTTPError as error:
            raise EngineError(f"the server at {self.url} broke off: {error}") from error


def split_query(url: str) -> tuple[str, str]:
    """Base URL without its last slash, and the query that chooses a model there, if any."""
    base, _, query = url.partition("?")
    return base.rstrip("/"), query


def headers_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What lets a client in, of the variables that are set."""
    given = {header: environment.get(name) for header, name in PROXY_VARIABLES.items()}
    key = environment.get(KEY_VARIABLE)
    given["Authorization"] = f"Bearer {key}" if key else None
    return {header: value for header, value in given.items() if value}


def pieces(line: str) -> Iterator[str]:
    """The text in a line of a stream, if any; raises `EngineError` for an error in it."""
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
    return f"{url} refuses with {response.status_code}: {response.text[:500]}{remedy}"
