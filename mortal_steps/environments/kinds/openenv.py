"""`type = "openenv"`: servers of OpenEnv, https://github.com/huggingface/OpenEnv."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.section import Options
from mortal_steps.environments.kinds.base import CalledEnvironment
from mortal_steps.environments.kinds.episode_return import ReturnRule
from mortal_steps.environments.kinds.openenv_session import (
    OpenEnvSession,
    RefusedError,
    patiently,
    understood,
)
from mortal_steps.errors import ConfigError, TransientError

WAITS = 0.8
"""Share of `timeout_s` for which an episode waits for a server that is away."""
NOT_TOLD = ("timeout", "transport_error")
"""Kinds of MCP errors that the model does not read: they are no answer of the tool."""


class OpenEnvEnvironment(CalledEnvironment):
    """`[environment]` at the address of a server. What it observes first is the prompt, behind the
    row's own, if it has one."""

    needs: ClassVar[Mapping[str, str]] = {"websockets": "websockets"}

    type: Literal["openenv"] = "openenv"
    url: Annotated[str, NO_NUMBERS] = Field(pattern=r"^(https?|wss?)://")
    """Address of the server, such as `http://127.0.0.1:8000`. It must allow as many sessions as
    there are episodes at a time (`max_concurrent_envs`)."""
    action: str | None = None
    """Field of its action that is what the model says: each message is a step, and what is observed
    the user's next message. Default: the model calls the server's MCP tools."""
    tool: str | None = Field(None, pattern=r"^[A-Za-z]\w*$")
    """Name of one tool in place of the server's: it takes a step, and its parameters are the fields
    of the action."""
    observation: str | None = None
    """Field of the observation that the model reads. Default: all of it, as JSON."""
    args: Options = Field(default_factory=dict)
    """What `reset` is given beside the columns of the row, and its `seed`."""
    reward: ReturnRule = "last"
    """What of the rewards of its steps is the episode's: their sum, or the last one. Without any,
    there is none."""

    @model_validator(mode="after")
    def _steps_in_one_way(self) -> Self:
        if self.action is not None and self.tool is not None:
            raise ValueError("environment.action and environment.tool: leave out one of the two")
        return self

    def load(self) -> Mapping[str, Callable[..., Any]]:
        from websockets.sync.client import connect

        session = self._session
        try:
            patiently(
                *(lambda: connect(session["url"], proxy=None).close(), self.url, self._waits_s)
            )
            methods = self._methods()
        except (RefusedError, ValueError) as error:
            raise ConfigError(
                f"environment.url = {self.url!r}: {error}; correct the address, or set "
                "environment.action or environment.tool"
            ) from None
        except OSError as error:
            raise TransientError(
                f"environment.url = {self.url!r}: there is no server of OpenEnv now: {error}; see "
                "to it, then start the run again"
            ) from None
        return {"": partial(type("OpenEnv", (OpenEnvSession,), methods), **session)}

    def _methods(self) -> dict[str, Callable[..., Any]]:
        if self.action is not None:
            return {"_reply": _replying(self.action)}
        if self.tool is not None:
            schema = patiently(self._schema, self.url, self._waits_s)
            return {self.tool: _tool(self.tool, "Take a step.", schema, OpenEnvSession._act)}
        server = OpenEnvSession(**self._session)
        try:
            observed = server._begin("step", {"type": "list_tools"}).observation
        finally:
            server._close()
        with understood(self.url):
            methods = {
                name: _tool(name, each["description"], each["input_schema"], partial(_called, name))
                for each in observed.get("tools") or ()
                for name in [each["name"]]
            }
        if not methods or methods.keys() & {"reset", "get_reward"}:
            raise ValueError(f"its MCP tools are {', '.join(methods) or 'none'}")
        return methods

    def _schema(self) -> dict[str, Any]:
        """Return that of the server's action."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as sessions are
        with (
            opener.open(f"http{self._rest}/schema", timeout=self.timeout_s) as read,
            understood(self.url),
        ):
            schema: dict[str, Any] = json.load(read)["action"]
            schema.get("properties", {}).pop("metadata", None)
        return schema

    @property
    def _rest(self) -> str:
        """The address without `http` or `ws`."""
        return self.url.rstrip("/").removeprefix("http").removeprefix("ws")

    @property
    def _session(self) -> dict[str, Any]:
        return {
            "url": f"ws{self._rest}/ws",
            "args": self.args,
            "shown": self.observation,
            "how": self.reward,
            "waits_s": self._waits_s,
        }

    @property
    def _waits_s(self) -> float:
        return WAITS * self.timeout_s


def _replying(field: str) -> Callable[..., str | None]:
    """Return a method for which each message is a step."""

    def _reply(self: OpenEnvSession, text: str) -> str | None:
        if self._is_over:
            return None
        try:
            observation = self._step(**{field: text})
        except ValueError as wrong:  # what the model said is no action
            return str(wrong)
        return None if self._is_over else self._text(observation)

    return _reply


def _called(name: str, self: OpenEnvSession, /, **arguments: Any) -> str:
    """Call an MCP tool; raise `ValueError` for the error that the tool gives."""
    observed = self._step(type="call_tool", tool_name=name, arguments=arguments)
    with understood(self._url):
        error, result = observed.get("error"), observed.get("result")
        kind, message = (error["error_type"], error["message"]) if error else ("", "")
        blocks = result.get("content", ()) if isinstance(result, dict) else ()
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        text = "\n".join(texts)
    if kind in NOT_TOLD:
        raise ConnectionError(f"{self._url}: {message}")
    if kind:
        raise ValueError(message)
    return text if texts else json.dumps(result, ensure_ascii=False)


def _tool(
    name: str, description: str, parameters: Mapping[str, Any], act: Callable[..., str]
) -> Callable[..., str]:
    """Return a method that brings its schema along."""

    def method(self: OpenEnvSession, **arguments: Any) -> str:
        return act(self, **arguments)

    method.__name__ = name
    whole = {"type": "object", "properties": {}, **parameters}
    described = {"name": name, "description": description, "parameters": whole}
    vars(method)["json_schema"] = {"type": "function", "function": described}
    return method
