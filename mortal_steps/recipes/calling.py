"""The process in which a function of the user's is called: `python -m ... CALL ANSWER`.

The file CALL says what is called with what; ANSWER is written last, with the metrics, or with what
is wrong. A process that ends without an answer was lost.
"""

import asyncio
import inspect
import math
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest
from mortal_steps.store.files import write_json
from mortal_steps.users_code.loading import import_code

OUT = "out"


def main(call_file: str, answer_file: str) -> None:
    """Call, and write the answer."""
    call = pickle.loads(Path(call_file).read_bytes())
    write_json(Path(answer_file), _answer(call))


def _answer(call: Mapping[str, Any]) -> dict[str, Any]:
    called, parameters = call["called"], call["parameters"]
    try:
        function = import_code(call["spec"], f"{called}.call", noun="Function")
        arguments = bound(function, parameters, called, call["spec"])
    except ConfigError as error:
        return {"config": str(error)}
    if call["out"] is None:
        return {"metrics": {}}
    try:
        returned = function(**arguments, out=call["out"])
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of the user, who is told
        return {"error": f"raised {type(error).__name__}: {error}\n{_users_part(error)}"}
    return {"metrics": _numbers(returned)}


def bound(
    function: Callable[..., Any], parameters: Mapping[str, Any], called: str, spec: str
) -> dict[str, Any]:
    """Return the arguments but for `out`; a text is a Path where the function says so. Raises
    `ConfigError` for parameters that it lacks, does not know, or takes by position alone."""
    if not callable(function):
        raise ConfigError(f"{called}.call = {spec!r} is a {type(function).__name__}, no function")
    try:
        signature = inspect.signature(function, eval_str=True)
    except (TypeError, ValueError, NameError):
        signature = inspect.signature(function)
    kinds = {name: each.kind for name, each in signature.parameters.items()}
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds.values()
    named = {
        name: each
        for name, each in signature.parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    if OUT not in named and not takes_all:
        raise ConfigError(
            f"{called}.call = {spec!r}: it has no parameter `{OUT}`, the folder that it fills; add "
            f"`{OUT}: Path`"
        )
    for name in parameters:
        if name not in named and not takes_all:
            near = nearest(name, named.keys() - {OUT}, cutoff=0.6)
            known = ", ".join(sorted(named.keys() - {OUT})) or "none"
            hint = f"did you mean {near}?" if near else f"its parameters: {known}"
            raise ConfigError(f"{called}.{name}: {spec} has no such parameter; {hint}")
    for name, each in signature.parameters.items():
        needed = each.default is each.empty and each.kind not in (
            each.VAR_POSITIONAL,
            each.VAR_KEYWORD,
        )
        if needed and name != OUT and (name not in parameters or name not in named):
            raise ConfigError(
                f"{called}.{name} is not set, and {spec} needs it"
                + ("" if name in named else " by position; let it be given by name")
            )
    return {
        name: Path(value)
        if isinstance(value, str) and name in named and named[name].annotation is Path
        else value
        for name, value in parameters.items()
    }


async def _awaited(value: Any) -> Any:
    return await value


def _numbers(returned: Any) -> dict[str, float]:
    """Return what is shown of what a function returns: numbers by name."""
    if not isinstance(returned, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in returned.items()
        if isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
    }


def _users_part(error: BaseException) -> str:
    """Return the traceback from the user's code on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    return "".join(traceback.format_list(own)).rstrip()


if __name__ == "__main__":
    main(*sys.argv[1:])
