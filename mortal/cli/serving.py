"""`serve`: a trained model as an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mortal.cli.arguments import RunId, RunsDir, Trust, Volume, find_place, port_number
from mortal.terminal.output import say
from mortal_steps.errors import ConfigError

if TYPE_CHECKING:  # commands that need no run import none
    from mortal_steps.runs.run import Run
    from mortal_steps.serving.commands import Endpoint
    from mortal_steps.serving.preparing import Wanted

DEFAULT_PORT = 8000
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LONGEST_EXAMPLE = 200
"""Characters of the longest prompt that is shown as an example."""

Step = Annotated[
    int | None,
    typer.Option(metavar="N", help="Use the model after N train steps, if the run has kept it."),
]
ServedPort = Annotated[
    int, typer.Option(parser=port_number, metavar="PORT", help="Port; 0 picks a free one.")
]
EngineName = Annotated[
    str | None,
    typer.Option(
        metavar="ENGINE",
        help="vllm or transformers. Default: vllm, if the interpreter of the run's rollout "
        "workers, or --python, has it.",
    ),
]
Merged = Annotated[
    bool,
    typer.Option(
        "--merged",
        help="LoRA: merge the adapter into its base; by default, vLLM serves it beside the base.",
    ),
]
Python = Annotated[str | None, typer.Option(metavar="PATH", help="Interpreter that has vLLM.")]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- OPTION...]", help="Options of the engine's own server."),
]
Host = Annotated[str, typer.Option(metavar="HOST", help="Address to listen at.")]
OnModal = Annotated[
    bool,
    typer.Option(
        "--modal", help="Serve it on Modal, beside the Volume that holds the run: print the URL."
    ),
]


def serve(
    run_id: RunId,
    extra: Extra = None,
    step: Step = None,
    host: Host = "127.0.0.1",
    port: ServedPort = DEFAULT_PORT,
    engine: EngineName = None,
    merged: Merged = False,
    python: Python = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    trust: Trust = False,
    modal: OnModal = False,
) -> None:
    """Serve a trained model through an OpenAI-compatible API, until Ctrl-C.

    The server is vLLM's own or, where vLLM is not installed, that of transformers. The model's
    name in the API is the run's id or, with --step, RUN@N.
    """
    from mortal_steps.serving.commands import Endpoint
    from mortal_steps.serving.server import free_port

    if modal:
        from mortal.remote.serving import show_endpoint

        show_endpoint(find_place(run_id, runs_dir)[1], step)
        return
    wanted = _wanted(step, engine, merged, python)
    endpoint = free_port(Endpoint(host=host, port=port, extra=tuple(extra or ())))
    _serve_until_it_ends(_find(run_id, runs_dir, volume, wanted, trust=trust), wanted, endpoint)


def _serve_until_it_ends(run: Run, wanted: Wanted, endpoint: Endpoint) -> None:
    from mortal_steps.serving.commands import url_of
    from mortal_steps.serving.folder import scratch
    from mortal_steps.serving.preparing import prepare
    from mortal_steps.serving.server import running, wait_for_end

    with scratch(run.store.root.parent) as folder:
        served, command = prepare(run, wanted, endpoint, folder, say)
        log = folder / "server.log"
        say(f"starting the server of {command.engine} with {run.info.run_id}, step {served.step}")
        with running(command, endpoint, log) as process:
            url = url_of(endpoint)
            say(f"{served.name} is served at {url}  (Ctrl-C ends it)")
            if endpoint.host not in LOOPBACK:
                say(
                    f"anybody who reaches {endpoint.host}:{endpoint.port} may use it, unless the "
                    "server has a key: for vLLM, set VLLM_API_KEY"
                )
            say(_curl(run, url, served.name))
            wait_for_end(process, command, log)


def _wanted(step: int | None, engine: str | None, merged: bool, python: str | None) -> Wanted:
    from mortal_steps.serving.preparing import Wanted

    known: dict[str, Literal["vllm", "transformers"]] = {
        "vllm": "vllm",
        "transformers": "transformers",
    }
    if engine is not None and engine not in known:
        raise ConfigError(f"--engine {engine!r}: there are vllm and transformers")
    return Wanted(step=step, engine=known[engine] if engine else None, merged=merged, python=python)


def _find(run_id: str, runs_dir: Path, volume: str | None, wanted: Wanted, *, trust: bool) -> Run:
    """The run, which is downloaded first if a Volume is named."""
    from mortal_steps.runs.run import find_run
    from mortal_steps.runs.trust import check_trusted

    runs_dir, run_id = find_place(run_id, runs_dir)
    if volume is not None:
        from mortal.remote.runs import fetch_run

        say(fetch_run(volume, run_id, runs_dir, everything=wanted.step is not None))
    run = find_run(runs_dir.absolute(), run_id)
    if not trust and wanted.python is None and wanted.engine != "transformers":
        check_trusted(run)  # the interpreter with vLLM is the one that it names
    return run


def _curl(run: Run, url: str, name: str) -> str:
    """A request that can be pasted into a shell. It asks the run's own first problem in the form of
    its training, or one word if its prompt is longer than `LONGEST_EXAMPLE`."""
    from mortal_steps.data.kept import find_train_problems

    prompt, config = find_train_problems(run.store)[0].prompt, run.config
    body: dict[str, Any] = {"model": name, "temperature": 0.0}
    if config.max_tokens is not None:
        body["max_tokens"] = config.max_tokens
    if config.rollout.stop:
        body["stop"] = list(config.rollout.stop)
    if isinstance(prompt, str):
        path, body["prompt"] = "/completions", _short(prompt)
    else:
        if config.training.template_options:
            body["chat_template_kwargs"] = dict(config.training.template_options)
        last = {**prompt[-1], "content": _short(str(prompt[-1]["content"]))}
        path, body["messages"] = "/chat/completions", [*prompt[:-1], last]
    asked = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {url}{path} -H 'Content-Type: application/json' -d {asked}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_EXAMPLE else "Hello"
