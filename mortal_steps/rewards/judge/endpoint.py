"""One request to an OpenAI-compatible API, and what each way to fail means."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

import openai
from openai.types.chat import ChatCompletion

from mortal_steps.errors import ConfigError
from mortal_steps.rewards.judge.question import SCHEMA, Question, RefusedError, UnavailableError
from mortal_steps.system.texts import printable

logger = logging.getLogger(__name__)

RETRIED = frozenset({408, 409, 425, 429})
"""Statuses after which the same request may succeed, besides those from 500 on."""

REFUSES_SCHEMA = frozenset({400, 415, 422, 501})
"""HTTP statuses by which an endpoint refuses a request for a JSON schema."""

NO_KEY = "none"
"""Key that is sent where none is named: the client requires one, and such endpoints ignore it."""

SHOWN = 200
"""Characters of an endpoint's own words in a message."""

MALFORMED = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    *(OverflowError, RecursionError),  # infinity for a number of tokens; a million brackets
)
"""Errors raised by a body that is no chat completion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An endpoint's answer, and what it took."""

    text: object
    """The answer as it came; it is a judge's answer only if it is text."""
    prompt_tokens: int
    completion_tokens: int
    """Tokens of the answer; 0 if the endpoint does not count them."""


class Endpoint:
    """The API at `base_url`, asked from one event loop; `key_variable` names the environment
    variable of its key, if it needs one."""

    def __init__(self, base_url: str, key_variable: str | None) -> None:
        self.base_url = base_url.rstrip("/")
        _check_address(base_url)
        self._key_variable = key_variable
        self._key = _key(key_variable, self.base_url)
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._key or NO_KEY,
            timeout=None,  # `ask` has its own
            max_retries=0,  # for who asks, and who knows how long it may take
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        self._takes_schemas = True
        """False once the endpoint has refused a schema and answered the same request without one.
        """
        self._counts_tokens = True
        """False once the endpoint has answered without a number of tokens; the first time is warned
        of."""

    async def ask(self, question: Question, timeout_s: float) -> Reply:
        """Return the answer, in JSON of a schema unless the endpoint refuses that. Raises
        `UnavailableError` (try later), `RefusedError`, `ConfigError` (key, address or model)."""
        try:
            # The client's own limit begins anew with each byte that arrives.
            async with asyncio.timeout(timeout_s):
                return self._read(await self._complete(question))
        except (TimeoutError, openai.APITimeoutError):
            raise UnavailableError(f"no whole answer within {timeout_s:.3g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise UnavailableError(f"{type(cause).__name__}: {cause}") from None
        except openai.APIStatusError as error:
            raise self._meaning(error, question) from None
        except MALFORMED:
            raise UnavailableError("status 200 with a body that is no chat completion") from None

    async def _complete(self, question: Question) -> ChatCompletion:
        if self._takes_schemas:
            try:
                return await self._post(question, {"response_format": SCHEMA})
            except openai.APIStatusError as error:
                if error.status_code not in REFUSES_SCHEMA:
                    raise
        completion = await self._post(question, {})
        self._takes_schemas = False
        return completion

    async def _post(self, question: Question, further: Mapping[str, Any]) -> ChatCompletion:
        return await self._client.chat.completions.create(
            model=question.term.model,
            messages=cast(Any, [dict(message) for message in question.messages]),
            extra_body={**question.term.parameters, **further},
        )

    def _meaning(self, error: openai.APIStatusError, question: Question) -> Exception:
        status, words = error.status_code, self._words(error)
        if status in RETRIED or status >= 500:
            return UnavailableError(words, _retry_after_s(error.response.headers))
        if status in (401, 403):
            return self._wrong_key(status)
        if 300 <= status < 400 or status == 405:
            return ConfigError(
                f"base_url = {self.base_url!r} of a judge: requests to {self.base_url}"
                f"/chat/completions are not answered there ({words}); write the address that the "
                "API has now, without /chat/completions"
            )
        if status == 404:
            return ConfigError(
                f"model = {question.term.model!r} of a judge: {self.base_url} has no such model, "
                f"or is no OpenAI-compatible API ({words}); correct model or base_url"
            )
        return RefusedError(words)

    def _read(self, completion: ChatCompletion) -> Reply:
        """Return the reply; raises one of `MALFORMED` for a proxy's body that no such API sends."""
        usage = completion.usage
        if usage is None and self._counts_tokens:
            self._counts_tokens = False
            logger.warning(
                "%s does not say how many tokens its answers take, so what they cost is not "
                "counted, neither in reports nor for compute.modal.max_cost",
                self.base_url,
            )
        return Reply(
            text=completion.choices[0].message.content,
            prompt_tokens=int((usage and usage.prompt_tokens) or 0),
            completion_tokens=int((usage and usage.completion_tokens) or 0),
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

    def _words(self, error: openai.APIStatusError) -> str:
        words = printable(" ".join(error.response.text[: 4 * SHOWN].split()))
        if self._key:
            words = words.replace(self._key, "***")
        return f"status {error.status_code}: {words[:SHOWN]}".rstrip(": ")


def _check_address(base_url: str) -> None:
    address = urlsplit(base_url)
    if address.username is not None:
        raise ConfigError(
            "base_url of a judge holds a user name or a key, which a run would record; leave "
            "it out there, and name an environment variable with the key in api_key_env"
        )
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(
            f"base_url = {base_url!r} of a judge is no address of an API; write one such as "
            "https://api.openai.com/v1"
        )


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
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"api_key_env = {variable!r} of a judge: the key in that environment variable has a "
            "character that no key has, such as a line break or a typographic quote; correct it"
        )
    return key


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait, which the header gives as a number or as a date; 0 without it."""
    asked = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return max(0.0, float(asked))
    with contextlib.suppress(ValueError):  # neither: as if it were missing
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    return 0.0
