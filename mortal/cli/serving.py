"""`serve`, `chat`: a trained model as an OpenAI-compatible endpoint, and a client that asks it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
Prompt = Annotated[
    str | None,
    typer.Argument(
        metavar="PROMPT",
        help="What to ask. Default: what you type, line by line, or standard input.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask a server that runs, such as http://127.0.0.1:8000/v1. Default: start one.",
    ),
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Tokens per answer. Default: the run's own.")
]
Temperature = Annotated[
    float, typer.Option(min=0, metavar="T", help="0: always the likeliest token.")
]
Plain = Annotated[
    bool | None,
    typer.Option(
        "--plain/--messages",
        help="Let it continue the text, or send chat messages. Default: as in training.",
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
    cron: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve a trained model through an OpenAI-compatible API, until Ctrl-C.

    The server is vLLM's own or, where vLLM is not installed, that of transformers. The model's
    name in the API is the run's id or, with --step, RUN@N.
    """
    from mortal_steps.serving.commands import Endpoint
    from mortal_steps.serving.server import free_port

    _refuse_configuration(run_id, cron)
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


def chat(
    run_id: RunId,
    prompt: Prompt = None,
    step: Step = None,
    url: Url = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    plain: Plain = None,
    engine: EngineName = None,
    merged: Merged = False,
    python: Python = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    trust: Trust = False,
) -> None:
    """Ask a trained model, in the form of the run's own problems."""
    from mortal.terminal.chat import converse
    from mortal_steps.errors import RunNotFoundError
    from mortal_steps.serving.asking import Client, Manner, changed, manner_of

    prompt = _asked(prompt)
    wanted = _wanted(step, engine, merged, python)
    manner = Manner()
    try:
        run = _find(run_id, runs_dir, volume, wanted, trust=trust or url is not None)
        manner = manner_of(run)
    except RunNotFoundError:
        if url is None:
            raise
    manner = changed(manner, plain=plain, max_tokens=max_tokens)
    if url is not None:
        converse(Client(url), find_place(run_id, runs_dir)[1], step, manner, prompt, temperature)
        return
    with _served(run, wanted) as own:
        converse(Client(own), run.info.run_id, step, manner, prompt, temperature)


def _asked(prompt: str | None) -> str | None:
    """The question that was typed or piped in; None if the user is asked for one question after
    another."""
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise ConfigError(f"the prompt {prompt!r} is empty; write a question, or leave it out")
    return prompt


@contextmanager
def _served(run: Run, wanted: Wanted) -> Iterator[str]:
    """The URL of a server that runs for the time of the block."""
    from mortal_steps.report.spinner import spinner
    from mortal_steps.serving.commands import Endpoint, url_of
    from mortal_steps.serving.folder import scratch
    from mortal_steps.serving.preparing import prepare
    from mortal_steps.serving.server import free_port, running

    endpoint = free_port(Endpoint(host="127.0.0.1", port=0))
    with scratch(run.store.root.parent) as folder:
        _, command = prepare(run, wanted, endpoint, folder, _say_aside)
        spinner.show(f"starting the server of {command.engine}")
        with running(command, endpoint, folder / "server.log"):
            spinner.stop()
            yield url_of(endpoint)


def _say_aside(text: str) -> None:
    """Print to standard error: only answers go to standard output."""
    typer.echo(text, err=True)


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


def _refuse_configuration(run: str, cron: str | None) -> None:
    """Explain to who calls `mortal serve CONFIG` that `mortal schedule CONFIG` does this now."""
    if cron is not None or run.endswith(".toml") or Path(run).is_file():
        raise ConfigError(
            "`mortal serve RUN` serves a trained model. To train by a configuration on demand or "
            f"at set times, call `mortal schedule {run}`"
            + (f" --cron {cron!r}" if cron is not None else "")
        )


def _curl(run: Run, url: str, name: str) -> str:
    """A request that can be pasted into a shell. It asks the run's own first problem, if that is
    short."""
    from mortal_steps.serving.asking import example_of

    path, body = example_of(run, name)
    asked = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {url}{path} -H 'Content-Type: application/json' -d {asked}"
