"""`promote`, `rollback`, `models`, `serve`, `export`: which model is in use, and how to use one."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mortal.cli.arguments import (
    FLOAT_TYPES,
    AsJson,
    FloatType,
    RunId,
    RunsDir,
    Trust,
    Volume,
    override_option,
    port_number,
    split_run,
)
from mortal.terminal.console import print_columns
from mortal.terminal.output import print_json, say
from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.report.units import moment

if TYPE_CHECKING:  # help needs none of them
    from mortal_steps.promotion.comparison import Comparison
    from mortal_steps.registry.registry import Decision, Registry
    from mortal_steps.runs.run import Run

NAMES = ("name", "run", "since", "by", "path")
DECISIONS = ("when", "decision", "run", "by", "why")

MODELS_DIR = "MORTAL_MODELS_DIR"
"""Environment variable: the folder that holds the models in use."""
ModelsDir = Annotated[
    Path,
    typer.Option(
        "--models-dir",
        metavar="DIR",
        help="Folder that holds the models in use.",
        envvar=MODELS_DIR,
    ),
]
ModelName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the model, as listed by `mortal models`.")
]


PromotedName = Annotated[
    str | None,
    typer.Option(help="Name to promote the model to. Default: `name` in the configuration."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Promote the model whatever the comparison says.")]
MinGain = Annotated[
    float | None,
    typer.Option(
        metavar="REWARD",
        help="Promote the model if its reward is shown to be higher by more than this, else refuse "
        "it: the lower end of the 95 % interval of the gain decides.",
    ),
]
ComparedOverrides = Annotated[
    list[str] | None,
    override_option(
        help="Change how the models are compared, such as evaluation.functions=['a.py:b'].",
    ),
]


def promote(
    run_id: RunId,
    name: PromotedName = None,
    yes: Yes = False,
    min_gain: MinGain = None,
    overrides: ComparedOverrides = None,
    runs_dir: RunsDir = Path("runs"),
    models_dir: ModelsDir = Path("models"),
    trust: Trust = False,
) -> None:
    """Compare a run's model with the one in production, and promote it.

    Both answer the run's held-out problems. Without --yes or --min-gain you are asked. The model in
    production is then DIR/NAME/production, for vLLM or transformers to load.
    """
    import asyncio

    from mortal_steps.promotion.comparison import Verdict, by_threshold
    from mortal_steps.promotion.gate import Gate
    from mortal_steps.registry.registry import Registry
    from mortal_steps.runs.run import find_run
    from mortal_steps.runs.trust import check_trusted

    if yes and min_gain is not None:
        raise ConfigError("--yes promotes whatever the gain is; leave out --min-gain")
    runs_dir, run_id = split_run(run_id, runs_dir)
    run = find_run(runs_dir.absolute(), run_id)
    if not yes and min_gain is None and not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask in; use --yes, or --min-gain GAIN")
    if not trust:
        check_trusted(run)
    gate = Gate(run, Registry(models_dir.absolute(), name or run.config.name), overrides or [])
    candidate = gate.bring_in()
    if gate.registry.production() == candidate:
        say(f"{candidate.id} is in production already: {gate.registry.link}")
        return
    say("comparing the models on the held-out problems")
    comparison = asyncio.run(gate.compare(candidate))
    _show_comparison(comparison)
    if min_gain is not None:
        gate.check_scored(comparison)
        verdict = by_threshold(comparison, min_gain, gate.command())
        by = f"mortal promote --min-gain {min_gain:g}"
    else:
        by = getpass.getuser()
        promotes = yes or typer.confirm(f"Put this model in production as {gate.registry.name}?")
        verdict = Verdict(promote=promotes, why="--yes" if yes else "asked at the terminal")
    decision = gate.decide(comparison, verdict, by=by)
    _show_decision(decision, gate.registry)
    raise typer.Exit(0 if verdict.promote else 1)


def rollback(
    name: ModelName,
    to: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run whose model to use again. Default: the one before."),
    ] = None,
    why: Annotated[str, typer.Option(help="A reason, for the history.")] = "",
    models_dir: ModelsDir = Path("models"),
) -> None:
    """Put the previous model back into production."""
    from mortal_steps.registry.registry import Registry

    registry = Registry(models_dir.absolute(), name)
    decision = registry.roll_back(by=getpass.getuser(), why=why or "mortal rollback", to=to)
    _show_decision(decision, registry)


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show the history of this model.")
    ] = None,
    models_dir: ModelsDir = Path("models"),
    as_json: AsJson = False,
) -> None:
    """List the models in production, or every decision about one of them."""
    from mortal_steps.registry.registry import Registry, list_names

    if name is not None:
        _show_history(Registry(models_dir.absolute(), name), as_json=as_json)
    else:
        _show_names(list_names(models_dir.absolute()), as_json=as_json)


def _show_comparison(comparison: Comparison) -> None:
    from mortal_steps.promotion.comparison import comparison_text, metric_rows

    other = "incumbent" if comparison.incumbent else "before training"
    print_columns([("", "candidate", other, "difference"), *metric_rows(comparison)])
    say(comparison_text(comparison))


def _show_decision(decision: Decision, registry: Registry) -> None:
    said = f"{decision.version.id}: {decision.action}"
    say(f"{said} ({decision.why})" if decision.action == "refused" else said)
    if registry.link.is_symlink():
        say(f"in production: {registry.link} -> {registry.link.readlink()}")


def _show_names(registries: Sequence[Registry], *, as_json: bool) -> None:
    rows = []
    for registry in registries:
        moved = [made for made in registry.history() if made.action != "refused"]
        if moved:
            last = moved[-1]
            run, since = last.version.run_id, moment(last.at)
            rows.append((registry.name, run, since, last.by, str(registry.link)))
    if as_json:
        print_json([dict(zip(NAMES, row, strict=True)) for row in rows])
    elif rows:
        print_columns([NAMES, *rows])
    else:
        typer.echo("no model is in production; `mortal promote RUN` puts one there", err=True)


def _show_history(registry: Registry, *, as_json: bool) -> None:
    """Print each decision about a name, oldest first; raises `StoreError` without any."""
    history = registry.history()
    if not history:
        raise StoreError(f"nothing was decided about {registry.name} in {registry.store.root}")
    if as_json:
        print_json(history)
        return
    rows = [(moment(m.at), m.action, m.version.run_id, m.by, m.why) for m in history]
    print_columns([DECISIONS, *rows])


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
    typer.Argument(metavar="-- OPTION", help="Options of vLLM's server."),
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
    from mortal_steps.runs.trust import check_trusted
    from mortal_steps.serving.server import prepare

    run = _found(run_id, runs_dir, volume, step)
    if not trust and python is None:
        check_trusted(run)  # the interpreter with vLLM is the one that it names
    step, command = prepare(run, step, python=python, port=port, extra=extra or ())
    say(f"run {run.info.run_id} is {run.status()}; serving its model of step {step}")
    say(f"vLLM's server answers at http://127.0.0.1:{port}/v1 once it has started (Ctrl-C ends it)")
    os.execvpe(command[0], command, {**os.environ, "VLLM_NO_USAGE_STATS": "1"})


def _found(run_id: str, runs_dir: Path, volume: str | None, step: int | None) -> Run:
    """Return the run, fetched from the Volume if one is named, all of it for a certain step."""
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is not None:
        from mortal.remote.runs import fetch_run

        say(fetch_run(volume, run_id, runs_dir, everything=step is not None))
    return find_run(runs_dir.absolute(), run_id)


Exported = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder for the model; it must not exist yet.")
]
AdapterAlone = Annotated[
    bool,
    typer.Option("--adapter", help="Write the LoRA adapter alone, not added to its base."),
]
ExportedType = Annotated[
    FloatType | None,
    typer.Option("--dtype", metavar="TYPE", help=f"Cast the weights: {FLOAT_TYPES}."),
]


def export(
    run_id: RunId,
    folder: Exported,
    step: Step = None,
    adapter: AdapterAlone = False,
    dtype: ExportedType = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
) -> None:
    """Write a run's model to a folder, with its tokenizer, for transformers, vLLM or llama.cpp.

    It is the final model, of a run that goes on the newest one; a LoRA adapter is added to its
    base. The weights have the type that they were trained in, unless you name another.
    """
    from mortal_steps.report.units import byte_size
    from mortal_steps.serving.exporting import export as export_run

    run = _found(run_id, runs_dir, volume, step)
    saved = export_run(run, folder, step=step, dtype=dtype, adapter_alone=adapter)
    size = byte_size(sum(file.stat().st_size for file in folder.iterdir()))
    what = "adapter" if adapter else "model"
    say(f"the {what} of run {run.info.run_id} after step {saved.step} is in {folder} ({size})")
