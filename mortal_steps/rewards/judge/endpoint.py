"""One request to an OpenAI-compatible API, and what each way to fail means."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

import httpx

from mortal_steps.errors import ConfigError
from mortal_steps.rewards.judge.question import CHARACTERS_PER_TOKEN, SCHEMA, Question
from mortal_steps.rewards.judge.tls import trusted
from mortal_steps.system.texts import printable

logger = logging.getLogger(__name__)

AGAIN = frozenset({408, 409, 425, 429})
"""Statuses after which the same request may succeed, besides those from 500 on."""

REFUSED = frozenset({400, 415, 422, 501})
"""Statuses by which an endpoint refuses a request that asks for a JSON schema."""

SHOWN = 200
"""Characters of an endpoint's own words in a message."""

NOT_ITS_FORM = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    *(OverflowError, RecursionError),  # infinity for a number of tokens; a million brackets
)
"""Errors raised by a body that is no chat completion."""

LARGEST = 16 * 2**20
"""Bytes of a response."""


class UnavailableError(Exception):
    """No answer this time; `retry_after_s` says how long the endpoint asks to wait."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RefusedError(Exception):
    """The endpoint will never answer this request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An endpoint's answer, and what it took."""

    text: object
    """The answer as it came; it is a judge's answer only if it is text."""
    prompt_tokens: int
    completion_tokens: int
    """Tokens of the answer; estimated if the endpoint does not count them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Response:
    """A whole response, before it is parsed."""

    status: int
    retry_after: str
    content: bytes


class Endpoint:
    """The API at `base_url`; it can be used by several threads.

    `key_variable` names the environment variable with its key; None if it needs no key.
    """

    def __init__(self, base_url: str, key_variable: str | None) -> None:
        if urlsplit(base_url).username is not None:
            raise ConfigError(
                "base_url of a judge holds a user name or a key, which a run would record; leave "
                "it out there, and name an environment variable with the key in api_key_env"
            )
        self.base_url = base_url.rstrip("/")
        self._key_variable = key_variable
        self._key = _key(key_variable, self.base_url)
        self._client = httpx.Client(headers=self._headers(), verify=trusted())
        self._plain = threading.Event()
        """Set once it refused a schema and then answered the same request without one."""
        self._uncounted = threading.Event()
        """Set once it answered without the number of tokens."""

    def ask(self, question: Question, timeout_s: float) -> Reply:
        """The answer. The request demands JSON of a schema, unless the endpoint refuses that.

        Raises `UnavailableError` for what may succeed later, `RefusedError` for what will not, and
        `ConfigError` for a wrong key, address or model.
        """
        if self._plain.is_set():
            return self._reply(question, self._post(question, {}, timeout_s))
        response = self._post(question, {"response_format": SCHEMA}, timeout_s)
        if response.status not in REFUSED:
            return self._reply(question, response)
        reply = self._reply(question, self._post(question, {}, timeout_s))
        self._plain.set()
        return reply

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _headers(self) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return {"Content-Type": "application/json", **authorization}

    def _post(self, question: Question, further: Mapping[str, Any], timeout_s: float) -> _Response:
        body = {
            "model": question.model,
            "messages": [dict(message) for message in question.messages],
            **question.parameters,
            **further,
        }
        address = f"{self.base_url}/chat/completions"
        # In ASCII: a completion may hold halves of surrogate pairs, which UTF-8 does not.
        asked = self._client.stream("POST", address, content=json.dumps(body), timeout=timeout_s)
        try:
            with asked as response:
                return _received(response, timeout_s)
        except httpx.TimeoutException:
            raise UnavailableError(f"no answer within {timeout_s:.3g} s") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ConfigError(f"base_url = {self.base_url!r} of a judge: {error}") from None
        except httpx.RequestError as error:
            raise UnavailableError(f"{type(error).__name__}: {error}") from None

    def _reply(self, question: Question, response: _Response) -> Reply:
        status = response.status
        if status in AGAIN or status >= 500:
            raise UnavailableError(self._words(response), _retry_after(response))
        if status in (401, 403):
            raise self._wrong_key(status)
        if 300 <= status < 400 or status == 405:
            raise ConfigError(
                f"base_url = {self.base_url!r} of a judge: requests to {self.base_url}"
                f"/chat/completions are not answered there ({self._words(response)}); write the "
                "address that the API has now, without /chat/completions"
            )
        if status == 404:
            raise ConfigError(
                f"model = {question.model!r} of a judge: {self.base_url} has no such model, or is "
                f"no OpenAI-compatible API ({self._words(response)}); correct model or base_url"
            )
        if status != 200:
            raise RefusedError(self._words(response))
        reply = _parsed(response)
        if reply.prompt_tokens and reply.completion_tokens:
            return reply
        return self._estimated(reply, question)

    def _estimated(self, reply: Reply, question: Question) -> Reply:
        """With a guess where the endpoint did not count: what is paid must not seem free."""
        if not self._uncounted.is_set():
            self._uncounted.set()
            logger.warning(
                "%s does not say how many tokens requests to %s take; they are counted and priced "
                "by an estimate, a token for every %d characters",
                self.base_url,
                question.model,
                CHARACTERS_PER_TOKEN,
            )
        said = len(reply.text) if isinstance(reply.text, str) else 0
        return replace(
            reply,
            prompt_tokens=reply.prompt_tokens or question.prompt_tokens(),
            completion_tokens=reply.completion_tokens or -(-said // CHARACTERS_PER_TOKEN),
        )

    def _wrong_key(self, status: int) -> ConfigError:
        """Without the endpoint's own words, which may repeat the key."""
        if self._key_variable is None:
            return ConfigError(
                f"api_key_env of a judge is not set: {self.base_url} wants a key (status "
                f"{status}); name the environment variable that holds one in api_key_env"
            )
        return ConfigError(
            f"api_key_env = {self._key_variable!r} of a judge: {self.base_url} refuses the key in "
            f"that environment variable (status {status}); put a key there that may use the model"
        )

    def _words(self, response: _Response) -> str:
        said = printable(" ".join(_text(response)[: 4 * SHOWN].split()))
        if self._key:
            said = said.replace(self._key, "***")
        return f"status {response.status}: {said[:SHOWN]}".rstrip(": ")


def _key(variable: str | None, base_url: str) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"api_key_env = {variable!r} of a judge: there is no such environment variable where "
            f"reward functions run; set it to a key for {base_url}, and name it in "
            "rewards.credentials if it is one that they do not see"
        )
    return key


def _received(response: httpx.Response, timeout_s: float) -> _Response:
    """All of it. The client's own clock begins anew with each byte, so that a response that
    trickles would never be too late. Raises `UnavailableError`."""
    content, until = bytearray(), monotonic() + timeout_s
    for chunk in response.iter_bytes():
        content += chunk
        if monotonic() > until:
            raise UnavailableError(f"no whole answer within {timeout_s:.3g} s")
        if len(content) > LARGEST:
            raise UnavailableError(f"an answer of more than {LARGEST:,} bytes")
    return _Response(
        status=response.status_code,
        retry_after=response.headers.get("retry-after", ""),
        content=bytes(content),
    )


def _text(response: _Response) -> str:
    return response.content.decode(errors="replace")


def _retry_after(response: _Response) -> float:
    """Seconds to wait; 0 if the header is missing or cannot be read."""
    said = response.retry_after
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time())
    except ValueError:
        return 0.0


def _parsed(response: _Response) -> Reply:
    """Raises `UnavailableError` for a body that no such API sends: what stands in between may."""
    try:
        body = json.loads(response.content)
        choice = body["choices"][0]
        usage = body.get("usage") or {}
        return Reply(
            text=choice["message"].get("content"),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        )
    except NOT_ITS_FORM:
        raise UnavailableError("status 200 with a body that is no chat completion") from None
