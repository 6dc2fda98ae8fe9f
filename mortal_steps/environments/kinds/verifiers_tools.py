"""The server of a toolset of verifiers v1, as `watch_tools` has it started.

    python -m mortal_steps.environments.kinds.verifiers_tools MODULE

It runs MODULE as verifiers does, whose servers say what a tool raised as text for the model. Here a
tool that raises an outage gives no answer: it is noted in a file, and the episode ends.
"""

import asyncio
import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool

from mortal_steps.environments.inside.outages import Outages
from mortal_steps.environments.inside.returned import raised
from mortal_steps.users_code.loading import is_in_file

OUTAGES, NOTED = "MORTAL_TOOL_OUTAGES", "MORTAL_TOOL_OUTAGE_FILE"
"""Variables with the names of exceptions, and with the file for the one that is raised."""
SEEN_S = 1.0
"""Seconds for which the file stands there before the server ends."""


def watch_tools(specs: Sequence[str]) -> None:
    """Have toolsets that are started on this machine say which of these outages they have."""
    from verifiers.v1.runtimes.subprocess import SubprocessRuntime

    absolute = [os.path.abspath(each) if is_in_file(each) else each for each in specs]
    os.environ[OUTAGES] = json.dumps(absolute)
    start = SubprocessRuntime.run_background

    async def start_here(self: Any, argv: list[str], env: dict[str, str], log: str) -> None:
        if "VF_CONFIG" in env and argv[1:2] == ["-m"]:
            argv = [argv[0], "-m", __name__, *argv[2:]]
        await start(self, argv, env, log)

    SubprocessRuntime.run_background = start_here


def _note_outages() -> None:
    outages, run = Outages(json.loads(os.environ[OUTAGES])), Tool.run

    async def run_here(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await run(self, *args, **options)
        except ToolError as error:
            if error.__cause__ is None or not outages.has(error):
                raise
            file = Path(os.environ[NOTED])
            file.with_suffix(".new").write_text(
                f"tool {self.name} {raised(error.__cause__)}", encoding="utf-8"
            )
            file.with_suffix(".new").replace(file)
        await asyncio.sleep(SEEN_S)
        os._exit(1)

    Tool.run = run_here


if __name__ == "__main__":
    _note_outages()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
