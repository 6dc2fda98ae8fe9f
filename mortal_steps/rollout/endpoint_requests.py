"""What a request to the policy's endpoint asks for: each value is of its kind and in its range."""

import math
import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

from mortal_steps.types import SamplingParams

Number = TypeVar("Number", int, float)

MOST_SEED = 2**62


class RequestError(Exception):
    """A request that cannot be answered; the message says why, `status` is HTTP's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def prompt_in(prompt: Any, *, num_known: int) -> list[int]:
    """Return the tokens of a prompt, each below `num_known`."""
    if not (isinstance(prompt, list) and prompt and all(type(one) is int for one in prompt)):
        raise RequestError("`prompt` is neither a text nor a list of tokens; give one of them")
    unknown = [one for one in prompt if not 0 <= one < num_known]
    if unknown:
        raise RequestError(
            f"`prompt` has the token {unknown[0]}, and those of the policy are 0 to "
            f"{num_known - 1}; is it of another model's tokenizer?"
        )
    return prompt


def seeds_in(body: Mapping[str, Any], *, most: int) -> list[int]:
    """Return a seed for each completion that is asked for, of which there are at most `most`."""
    count, first = _number(body, "n", 1, 1, most), _number(body, "seed", -1, 0, MOST_SEED)
    return [secrets.randbits(62) if first < 0 else first + i for i in range(count)]


def params_in(body: Mapping[str, Any], *, room: int, coldest: float = 0.0) -> SamplingParams:
    """Return how a request wants to have sampled, within the room that the model's context has, at
    temperature 0 or `coldest` or more."""
    if room < 1:
        raise RequestError("the prompt fills the model's context")
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    stop = body.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(each, str) for each in stops):
        raise RequestError("`stop` is neither a text nor a list of texts")
    temperature = _number(body, "temperature", 1.0, 0, 2)
    if 0 < temperature < coldest:
        raise RequestError(
            f"`temperature` is {temperature!r}: the engine samples at {coldest:g} or more, or at 0"
        )
    return SamplingParams(
        max_tokens=min(_number(body, name, room, 1, math.inf), room),
        temperature=temperature,
        top_p=_number(body, "top_p", 1.0, 1e-6, 1),
        top_k=max(0, _number(body, "top_k", 0, -1, math.inf)),  # vLLM's -1 keeps all, too
        min_p=_number(body, "min_p", 0.0, 0, 1),
        stop=stops,
    )


def _number(
    body: Mapping[str, Any], name: str, default: Number, least: float, most: float
) -> Number:
    """Return a number of a request, which is whole if the default is."""
    value = body.get(name)
    if value is None:
        return default
    whole = isinstance(default, int)
    if type(value) not in ((int,) if whole else (int, float)) or not least <= value <= most:
        span = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        raise RequestError(
            f"`{name}` is {value!r}, and has to be a {'whole ' if whole else ''}number {span}"
        )
    return type(default)(value)
