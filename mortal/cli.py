"""The `mortal` command. Heavy imports wait until a command needs them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from mortal_steps.config import ModalConfig
from mortal_steps.errors import MortalError

app = typer.Typer(
    name="mortal",
    help="Reinforcement post-training of language models as a durable pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunsDir = Annotated[
    Path, typer.Option("--runs-dir", help="Folder of all runs.", envvar="MORTAL_RUNS_DIR")
]
Port = Annotated[
    int, typer.Option(help="Port of mortal's own Prefect server; 0 takes any free one.")
]
KeepServer = Annotated[
    bool, typer.Option("--keep-server", help="Leave mortal's own Prefect server running.")
]
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Let a container on Modal drive the run; return at once."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Volume = Annotated[
    str | None,
    typer.Option(
        "--volume",
        help="Modal Volume that holds the run, such as mortal-runs, in place of this machine.",
        envvar="MORTAL_VOLUME",
    ),
]
ModalSettings = Annotated[
    Path | None,
    typer.Argument(help="TOML file of a run; its section compute.modal says what that needs."),
]
RunId = Annotated[str, typer.Argument(help="Run id, as `mortal runs` lists it.")]


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="TOML file; see deployments/configs.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override: section.key=value. Repeatable."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Identity of the run; the same id goes on with it.")
    ] = None,
    runs_dir: Annotated[Path | None, typer.Option(help="Folder of all runs.")] = None,
    detach: Detach = False,
    port: Port = 0,
    keep_server: KeepServer = False,
) -> None:
    """Train the model of a configuration file."""
    from mortal_steps.config.loader import load_config
    from mortal_steps.run import new_run_id

    settings = load_config(config, overrides or [])
    changes: dict[str, Any] = {"run_id": run_id or settings.run_id or new_run_id(settings)}
    if runs_dir is not None:
        changes["runs_dir"] = str(runs_dir)
    _drive(settings.model_copy(update=changes), port=port, keep_server=keep_server, detach=detach)


@app.command()
def resume(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    detach: Detach = False,
    port: Port = 0,
    keep_server: KeepServer = False,
) -> None:
    """Go on with a run after its last checkpoint, reusing what was already generated."""
    from mortal_steps.run import find_run

    if volume is not None:
        from mortal.modal_runs import bring

        bring(volume, run_id, runs_dir)
    run = find_run(runs_dir, run_id)
    settings = run.config.model_copy(
        update={"run_id": run_id, "runs_dir": str(runs_dir.absolute())}
    )
    if volume is not None:
        from mortal.modal_runs import on_volume

        settings = on_volume(settings, volume)
    os.chdir(run.working_dir())
    _drive(settings, port=port, keep_server=keep_server, detach=detach)


@app.command()
def stop(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    timeout_s: Annotated[float, typer.Option(help="Seconds to wait for the end.")] = 600,
) -> None:
    """End a run in order, as Ctrl-C does: its state is saved, its workers go.

    Asked a second time, a run on this machine ends at once.
    """
    from mortal.stopping import stop_here, stop_there

    if volume is not None:
        ended = stop_there(volume, run_id, timeout_s)
    else:
        ended = stop_here(runs_dir, run_id, timeout_s)
    typer.echo(f"{run_id}: {ended.status}, step {ended.step} of {ended.max_steps}")
    typer.echo(ended.error or "")
    raise typer.Exit(0 if ended.status in ("stopped", "completed") else 1)


@app.command()
def fork(
    run_id: RunId,
    at_step: Annotated[
        int | None,
        typer.Option(
            min=0, help="One of its checkpoints, as `mortal show` lists them; default: the newest."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change against the parent: section.key=value. Repeatable."),
    ] = None,
    new_id: Annotated[str | None, typer.Option("--run-id", help="Identity of the new run.")] = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    port: Port = 0,
    keep_server: KeepServer = False,
) -> None:
    """Train a new run from a checkpoint of another one, with other settings.

    The parent is only read; relative paths start where its own do. Weights,
    optimizer moments and logs go on; the learning rate and all other settings
    are the new run's from its first step.
    """
    from mortal_steps.fork import fork_run
    from mortal_steps.run import find_run

    if volume is not None:
        from mortal.modal_runs import fetch_run

        fetch_run(volume, run_id, runs_dir, everything=True)
    parent = find_run(runs_dir.absolute(), run_id)
    os.chdir(parent.working_dir())
    forked = fork_run(parent, overrides or [], at_step=at_step, run_id=new_id)
    typer.echo(f"run {forked.info.run_id} is a fork of {run_id} at step {forked.info.first_step}")
    _drive(forked.config, port=port, keep_server=keep_server)


@app.command()
def runs(runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False) -> None:
    """List the runs."""
    from mortal.display import runs_table
    from mortal_steps.report.summary import summarize
    from mortal_steps.run import list_runs

    if volume is not None:
        from mortal.modal_runs import summaries_there

        summaries = summaries_there(volume)
    else:
        summaries = [summarize(run) for run in list_runs(runs_dir)]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=1))
    elif summaries:
        runs_table(summaries)
    else:
        typer.echo(f"no runs in {volume or runs_dir}")


@app.command()
def show(
    run_id: RunId, runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False
) -> None:
    """Show where a run stands, what it reached and where its time went."""
    from mortal.display import show_run
    from mortal_steps.report.summary import summarize
    from mortal_steps.run import find_run

    if volume is not None:
        from mortal.modal_runs import summary_there

        summary = summary_there(volume, run_id)
    else:
        summary = summarize(find_run(runs_dir, run_id))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary), indent=1))
    else:
        show_run(summary)


@app.command()
def verify(
    run_id: RunId, runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False
) -> None:
    """Check every file of a run against its digest, and the chain of its steps."""
    from mortal.display import show_check
    from mortal_steps.verify import FinishedCheck, RunCheck, check_here

    check: RunCheck | FinishedCheck
    if volume is not None:
        from mortal.modal_runs import check_there

        check = check_there(volume, run_id)
    else:
        check = check_here(runs_dir, run_id)
    raise typer.Exit(0 if show_check(check, as_json=as_json) else 1)


@app.command()
def fetch(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Annotated[
        str, typer.Option(help="Modal Volume that holds the run.", envvar="MORTAL_VOLUME")
    ] = "mortal-runs",
    everything: Annotated[
        bool, typer.Option("--all", help="Checkpoints, weights and every step, too.")
    ] = False,
) -> None:
    """Bring the final model of a run on Modal here."""
    from mortal.modal_runs import fetch_run

    typer.echo(fetch_run(volume, run_id, runs_dir, everything=everything))


@app.command()
def options(
    section: Annotated[str | None, typer.Argument(help="Such as training, or model.new.")] = None,
) -> None:
    """Print every key of a configuration with its default and meaning, as TOML."""
    from mortal_steps.config.reference import reference_toml

    typer.echo(reference_toml(section), nl=False)


@app.command()
def new_model(
    folder: Annotated[Path, typer.Argument(help="Where the model goes; must not exist.")],
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
    hidden_size: Annotated[int, typer.Option(help="Width of the model.")] = 64,
    num_layers: Annotated[int, typer.Option(help="Transformer layers.")] = 2,
    head_dim: Annotated[int, typer.Option(help="Size of a head; vLLM needs 32 or more.")] = 32,
    intermediate_size: Annotated[int, typer.Option(help="Width of the MLP.")] = 128,
    context: Annotated[int, typer.Option(help="Context length in tokens.")] = 512,
    alphabet: Annotated[str | None, typer.Option(help="Characters the tokenizer knows.")] = None,
) -> None:
    """Build a tiny Qwen2-shaped model with a character tokenizer."""
    from mortal_steps.config import NewModelConfig
    from mortal_steps.errors import ModelError

    if folder.exists():
        raise ModelError(f"{folder} exists; name a folder that does not")
    shape: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "head_dim": head_dim,
        "intermediate_size": intermediate_size,
        "max_position_embeddings": context,
    }
    if alphabet is not None:
        shape["alphabet"] = alphabet
    from mortal_steps.policy.new_model import build_model

    build_model(folder, NewModelConfig(**shape), seed)
    typer.echo(f"{folder}: a model to name in [model] name_or_path")


@app.command()
def server(port: Port = 4200) -> None:
    """Run mortal's own Prefect server until Ctrl-C, to look at past runs in the UI."""
    import time

    from mortal.prefect_server import prefect_server

    with prefect_server(port=port, keep=False, say=typer.echo) as running:
        typer.echo(f"Prefect UI: {running.ui_url}  (Ctrl-C stops it)")
        while True:
            time.sleep(3600)


@app.command()
def automate(
    silence_s: Annotated[
        float, typer.Option(min=10, help="Seconds without a heartbeat or a start: it has crashed.")
    ] = 90,
    pause_s: Annotated[
        float, typer.Option(min=10, help="Seconds between a crash and the new schedule.")
    ] = 20,
    attempts: Annotated[
        int, typer.Option(min=2, help="Starts of one flow run, the first one included.")
    ] = 5,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the automations.")] = False,
) -> None:
    """Let the Prefect server bring crashed runs of the deployments back by itself."""
    from mortal.prefect_server import prefect_server

    with prefect_server(port=0, keep=False, say=typer.echo):
        from mortal import automations  # Prefect reads its settings when it is imported

        recovery = automations.Recovery(silence_s=silence_s, pause_s=pause_s, attempts=attempts)
        for line in automations.remove() if remove else automations.automate(recovery):
            typer.echo(line)


@app.command()
def deploy(config: ModalSettings = None) -> None:
    """Bring the app to Modal, check it, and apply the Prefect deployments."""
    from mortal import modal_deploy

    modal_deploy.deploy(_modal_options(config))


@app.command()
def doctor(config: ModalSettings = None) -> None:
    """Check what runs on Modal need: account, Volume, secrets, versions on both sides."""
    from mortal.modal_deploy import examine

    raise typer.Exit(0 if examine(_modal_options(config)) else 1)


def _modal_options(config: Path | None) -> ModalConfig:
    """`[compute.modal]` of a configuration file."""
    from mortal_steps.config.loader import load_config

    return load_config(config).compute.modal if config else ModalConfig()


def _drive(settings: Any, *, port: int, keep_server: bool, detach: bool = False) -> None:
    """Run the flow against a server, then say what came of it; or let Modal do so."""
    if detach:
        from mortal import detach as detached

        call_id, volume = detached.detach(settings), settings.compute.modal.volume
        typer.echo(f"run {settings.run_id} goes on in Modal ({call_id}); look at it with")
        typer.echo(f"    mortal show {settings.run_id} --volume {volume}")
        return
    from mortal.driver import drive

    drive(settings, port=port, keep_server=keep_server)


def main() -> NoReturn:
    """Entry point: a `MortalError` is a message and exit code 1, Ctrl-C is exit code 130.

    SIGTERM ends a command as Ctrl-C does, so that workers and server go in order.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        app()
    except MortalError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
    sys.exit(0)
