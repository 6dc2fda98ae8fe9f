"""The inside of the reward host: the process that reward functions run in.

It is started, watched and ended by `HostProcess`; functions run in its main thread, async ones in
one event loop beside it. It is asked in pickles and answers in JSON: it trusts its owner, which
does not trust what functions make of this process.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mortal_steps.errors import MortalError
from mortal_steps.rewards import execution
from mortal_steps.rewards import functions as our_functions
from mortal_steps.rewards.base import Loadable, RewardFunction
from mortal_steps.rewards.calling.calls import CallArguments, Outcome
from mortal_steps.rewards.calling.dispatch import call_functions, is_async
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.host.wire import HostAnswer, encode_answer, told
from mortal_steps.rewards.judge.place import JudgePlace, use_place
from mortal_steps.rewards.users_code.loading import load_term
from mortal_steps.sandbox.places import PlaceSettings
from mortal_steps.system.frames import HEADER, Request, receive_frame

logger = logging.getLogger(__name__)


def serve(descriptor: int) -> None:
    """Answer requests on this socket until the owner closes it."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logger.info("process %d is a mortal_steps.rewards.host.inside:RewardHost", os.getpid())
    with socket.socket(fileno=descriptor) as connection:
        try:
            host = RewardHost()
            while True:
                request: Request = receive_frame(connection)
                method = getattr(host, request.method)
                _answer(connection, request.number, partial(method, **request.payload))
        except EOFError:
            return


def _answer(connection: socket.socket, number: int, work: Callable[[], dict[str, Any]]) -> None:
    try:
        content = encode_answer(HostAnswer(number=number, **work()))
    except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the owner
        trace = traceback.format_exc()
        if not isinstance(error, MortalError):
            logger.error("call failed: %s", trace)
        content = encode_answer(HostAnswer(number=number, error=told(error, trace)))
    connection.sendall(HEADER.pack(len(content)) + content)


class RewardHost:
    """Holds the functions of a run and the completions they are called with."""

    def __init__(self) -> None:
        self._stacks = -1
        self._functions: dict[str, RewardFunction] = {}
        self._arguments: CallArguments | None = None

    def load(
        self,
        *,
        terms: Mapping[str, Loadable],
        stacks: int,
        gym_rows: bool,
        sandbox: PlaceSettings,
        judge: JudgePlace,
    ) -> dict[str, Any]:
        """Import what `terms` gives under each name.

        `stacks` is the descriptor of a file that learns where in its code the process was when a
        call took too long or crashed; `gym_rows`: the rows come from reasoning_gym itself;
        `sandbox`: where programs run; `judge`: where judges keep what they paid for.
        """
        faulthandler.enable(stacks)
        our_functions.trust_gym_rows(gym_rows)
        execution.use_settings(sandbox)
        use_place(judge)
        self._stacks = stacks
        self._functions = {name: load_term(term) for name, term in terms.items()}
        for function in self._functions.values():
            if isinstance(function, RewardEnvironment):
                function.prepare()
        return {}

    def release(self) -> dict[str, Any]:
        """Let go what would outlive this process: sandboxes of a service."""
        execution.close()
        return {}

    def turns(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """In which order functions are called: plain ones one by one, async ones together."""
        waiting = tuple(name for name, function in self._functions.items() if is_async(function))
        plain = tuple((name,) for name in self._functions if name not in waiting)
        return {"turns": (*plain, waiting) if waiting else plain}

    def take(self, *, arguments: CallArguments) -> dict[str, Any]:
        """Keep what the next calls are about."""
        self._arguments = arguments
        return {}

    def call(self, *, names: Sequence[str], timeout_s: float) -> dict[str, dict[str, Outcome]]:
        """Call functions on what was taken; raises the `MortalError` that one of them raises."""
        assert self._arguments is not None  # HostProcess calls `take` before
        functions = {name: self._functions[name] for name in names}
        os.ftruncate(self._stacks, 0)
        os.lseek(self._stacks, 0, os.SEEK_SET)
        faulthandler.dump_traceback_later(timeout_s, file=self._stacks)
        try:
            return {"outcomes": call_functions(functions, self._arguments, timeout_s=timeout_s)}
        finally:
            faulthandler.cancel_dump_traceback_later()
