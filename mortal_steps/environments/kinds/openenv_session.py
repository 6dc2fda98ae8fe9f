"""An episode at a server of OpenEnv: a WebSocket, with which the server's state of it ends.

So nothing is connected again behind an episode's back. A session that is lost is an outage: a new
cell begins the episode anew, once the server is there again, and repeats its steps.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.error import HTTPError

from pydantic import BaseModel, Field

from mortal_steps.environments.kinds.episode_return import EpisodeReturn, ReturnRule

PAUSE_S = 0.25
BUSY = (408, 425, 429)
"""HTTP statuses below 500 after which a request is made again."""
T = TypeVar("T")


class Taken(BaseModel):
    """What came of `reset` or of a step."""

    observation: dict[str, Any]
    reward: float | None = Field(None, allow_inf_nan=False)
    done: bool = False


class RefusedError(ConnectionError):
    """The server could not do what it was asked; it does not help to connect again at once."""


def patiently(ask: Callable[[], T], url: str, waits_s: float) -> T:
    """Return what a server answers; wait so long for one that is away or full. Raises
    `ConnectionError`, which is a `RefusedError` if it is there and has refused to the end."""
    from websockets.exceptions import WebSocketException

    until = time.monotonic() + waits_s
    while True:
        try:
            return ask()
        except RefusedError:
            raise
        except (OSError, WebSocketException) as error:
            if time.monotonic() > until:
                kind = RefusedError if _refuses(error) else ConnectionError
                raise kind(f"{url}: {error}") from None
            time.sleep(PAUSE_S)


def _refuses(error: Exception) -> bool:
    from websockets.exceptions import InvalidStatus

    status = error.response.status_code if isinstance(error, InvalidStatus) else None
    status = error.code if isinstance(error, HTTPError) else status
    return status is not None and 400 <= status < 500 and status not in BUSY


@contextlib.contextmanager
def understood(url: str) -> Iterator[None]:
    """Raise `ConnectionError` where a server's answer cannot be read as one."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        wrong = f"{type(error).__name__}: {error}"
        raise ConnectionError(f"{url}: its answer cannot be understood: {wrong}") from None


class OpenEnvSession:
    """An episode."""

    def __init__(
        self,
        *,
        url: str,
        args: Mapping[str, Any],
        shown: str | None,
        how: ReturnRule,
        waits_s: float,
    ) -> None:
        self._url, self._args, self._shown, self._waits_s = url, args, shown, waits_s
        self._return = EpisodeReturn(how)
        self._connection: Any = None
        self._is_over = False
        """Whether the server has said that the episode is over; no further step is asked for then.
        """

    def reset(self, *, seed: int, prompt: Any = None, **row: Any) -> str:
        begun = self._begin("reset", {**row, **self._args, "seed": seed})
        self._is_over = begun.done
        return self._text(begun.observation)

    def get_reward(self) -> float | None:
        return self._return.total

    def _begin(self, kind: str, data: Mapping[str, Any]) -> Taken:
        """Open a session with its first request; wait for a server that is away or full."""
        from websockets.sync.client import connect

        def begin() -> Taken:
            self._close()
            self._connection = connect(self._url, max_size=None, proxy=None)
            return self._asked(kind, data)

        return patiently(begin, self._url, self._waits_s)

    def _asked(self, kind: str, data: Mapping[str, Any]) -> Taken:
        """Raise `ValueError` for an action that is none, and `ConnectionError` for whatever else is
        no answer."""
        from websockets.exceptions import ConnectionClosed

        text = json.dumps({"type": kind, "data": data}, allow_nan=False)
        try:
            with contextlib.suppress(ConnectionClosed):  # it may have said why
                self._connection.send(text)
            answer = self._connection.recv()
        except ConnectionClosed as closed:
            raise ConnectionError(f"{self._url}: the session was lost: {closed}") from None
        with understood(self._url):
            found = json.loads(answer)
            data = found["data"]
            if found["type"] != "error":
                return Taken.model_validate(data)
            code, message = data.get("code"), data.get("message")
            wrong = [f"{each['loc']}: {each['msg']}" for each in data.get("errors", ())]
        if code == "VALIDATION_ERROR":
            raise ValueError("; ".join(wrong) or message)
        error = ConnectionError if code == "CAPACITY_REACHED" else RefusedError
        raise error(f"{self._url}: {code}: {message}")

    def _step(self, **action: Any) -> Mapping[str, Any]:
        """Return what is observed then; raise `ValueError` if the episode is over."""
        if self._is_over:
            raise ValueError("the episode is over")
        taken = self._asked("step", action)
        self._return.add(taken.reward)
        self._is_over = taken.done
        return taken.observation

    def _act(self, **action: Any) -> str:
        return self._text(self._step(**action))

    def _text(self, observation: Mapping[str, Any]) -> str:
        if self._shown is not None:
            if self._shown not in observation:
                raise ConnectionError(
                    f"{self._url}: environment.observation = {self._shown!r}: what was observed "
                    f"has the fields {', '.join(observation)}"
                )
            return str(observation[self._shown])
        shown = {name: value for name, value in observation.items() if name != "metadata"}
        return json.dumps(shown, ensure_ascii=False)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
