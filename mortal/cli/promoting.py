"""`promote`, `rollback`, `models`: which model is in use, and how it came to be."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from mortal.cli.arguments import AsJson, RunId, RunsDir, Trust, find_place
from mortal.terminal.output import say
from mortal_steps.errors import ConfigError

ModelsDir = Annotated[
    Path,
    typer.Option(
        "--models-dir",
        metavar="DIR",
        help="Folder that holds the models in use.",
        envvar="MORTAL_MODELS_DIR",
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
        help="Promote the model if its reward is higher by this or more, else refuse it.",
    ),
]
ComparedOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
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

    from mortal.terminal.promotion import ask, show_comparison, show_decision
    from mortal_steps.promotion.comparison import Verdict, by_threshold
    from mortal_steps.promotion.gate import Gate
    from mortal_steps.registry.registry import Registry
    from mortal_steps.runs.run import find_run
    from mortal_steps.runs.trust import check_trusted

    if yes and min_gain is not None:
        raise ConfigError("--yes promotes whatever the gain is; leave out --min-gain")
    runs_dir, run_id = find_place(run_id, runs_dir)
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
    show_comparison(comparison)
    if min_gain is not None:
        verdict, by = by_threshold(comparison, min_gain), f"mortal promote --min-gain {min_gain:g}"
    else:
        by = getpass.getuser()
        promotes = yes or ask(gate.registry.name)
        verdict = Verdict(promote=promotes, why="--yes" if yes else "asked at the terminal")
    decision = gate.decide(comparison, verdict, by=by)
    show_decision(decision, gate.registry)
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
    from mortal.terminal.promotion import show_decision
    from mortal_steps.registry.registry import Registry

    registry = Registry(models_dir.absolute(), name)
    decision = registry.roll_back(by=getpass.getuser(), why=why or "mortal rollback", to=to)
    show_decision(decision, registry)


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show the history of this model.")
    ] = None,
    models_dir: ModelsDir = Path("models"),
    as_json: AsJson = False,
) -> None:
    """List the models in production, or every decision about one of them."""
    from mortal.terminal.promotion import show_history, show_names
    from mortal_steps.registry.registry import Registry, list_names

    if name is not None:
        show_history(Registry(models_dir.absolute(), name), as_json=as_json)
    else:
        show_names(list_names(models_dir.absolute()), as_json=as_json)
