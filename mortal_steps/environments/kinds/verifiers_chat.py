"""The plain chat of verifiers v1, in the process that plays the episode.

Its harness `null` starts an interpreter for each message of a user, which takes seconds.
"""

import sys
import traceback
from collections.abc import Mapping
from typing import Any

from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes import ProgramResult

PROGRAM = compile(CHAT_PROGRAM_SOURCE, "<chat program of verifiers>", "exec")
FILE = "--initial-messages-file="


def chat_here() -> None:
    """Have the harness `null` run its program in this process."""
    exec(PROGRAM, {"__name__": "chat"})  # imports what each fork would import
    if NullHarness.setup is not _no_setup:
        NullHarness.setup, NullHarness.launch = _no_setup, _launched_here(NullHarness.launch)


async def _no_setup(self: Any, runtime: Any) -> None:
    """Have nothing installed."""


def _launched_here(launch: Any) -> Any:
    """Return a harness's `launch` whose program runs in this process."""

    async def launch_here(
        self: Any, ctx: Any, trace: Any, runtime: Any, *args: Any, **options: Any
    ) -> Any:
        return await launch(self, ctx, trace, _Here(runtime), *args, **options)

    return launch_here


class _Here:
    """A runtime that runs the program of the plain chat in this process, where others start an
    interpreter for each message of a user."""

    def __init__(self, runtime: Any) -> None:
        self._folder, self.write = runtime.workdir, runtime.write

    async def prepare_uv_script(self, *args: Any, **options: Any) -> list[str]:
        """Return what the program's arguments follow."""
        return []

    async def run_program(self, argv: list[str], env: Mapping[str, str]) -> ProgramResult:
        """Run the program's `main` with these arguments."""
        program: dict[str, Any] = {"__name__": "chat"}
        exec(PROGRAM, program)
        before, sys.argv = sys.argv, ["chat", *(self._whole(each) for each in argv)]
        try:
            arguments = program["parse_args"]()
        finally:
            sys.argv = before
        program["parse_args"] = lambda: arguments
        try:
            await program["main"]()
        except SystemExit as ended:
            return ProgramResult(int(ended.code or 0), "", "")
        except Exception:  # noqa: BLE001 - as its interpreter would end
            return ProgramResult(1, "", traceback.format_exc())
        return ProgramResult(0, "", "")

    def _whole(self, argument: str) -> str:
        return argument.replace(FILE, f"{FILE}{self._folder}/", 1)
