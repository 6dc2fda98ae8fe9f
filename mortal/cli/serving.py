"""`serve`: a trained model as an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mortal.cli.arguments import RunId, RunsDir, Trust, Volume, port_number, split_run
from mortal.terminal.output import say

Step = Annotated[
    int | None,
    typer.Option(metavar="N", help="Use the model after N train steps, if the run has kept it."),
]
ServedPort = Annotated[int, typer.Option(parser=port_number, metavar="PORT", help="Port.")]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Interpreter that has vLLM. Default: that of the run's rollout workers.",
    ),
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- OPTION...]", help="Options of vLLM's server."),
]


def serve(
    run_id: RunId,
    extra: Extra = None,
    step: Step = None,
    port: ServedPort = 8000,
    python: Python = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    trust: Trust = False,
) -> None:
    """Serve a trained model through vLLM's OpenAI-compatible API, until Ctrl-C.

    The model's name in the API is RUN or RUN@N, N being its train steps.
    """
    from mortal_steps.runs.run import find_run
    from mortal_steps.runs.trust import check_trusted
    from mortal_steps.serving.server import prepare

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is not None:
        from mortal.remote.runs import fetch_run

        say(fetch_run(volume, run_id, runs_dir, everything=step is not None))
    run = find_run(runs_dir.absolute(), run_id)
    if not trust and python is None:
        check_trusted(run)  # the interpreter with vLLM is the one that it names
    step, command = prepare(run, step, python=python, port=port, extra=extra or ())
    say(f"run {run_id} is {run.status()}; serving its model of step {step}")
    say(f"vLLM's server answers at http://127.0.0.1:{port}/v1 once it has started (Ctrl-C ends it)")
    os.execvpe(command[0], command, {**os.environ, "VLLM_NO_USAGE_STATS": "1"})
