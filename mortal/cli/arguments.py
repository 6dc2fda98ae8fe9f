"""Options and arguments that several commands share."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mortal_steps.errors import ConfigError, DataError, ModelError, RewardError
from mortal_steps.flags import PANELS, Flag, in_place_of_flags
from mortal_steps.runs.argument import RUNS_DIR


def port_number(given: str | int) -> int:
    """Return a TCP port, or 0. typer's own check of a range takes the room of the help's other
    columns."""
    if not str(given).isdecimal() or int(given) > LARGEST_PORT:
        raise typer.BadParameter(f"{given!r} is not a number from 0 to {LARGEST_PORT}")
    return int(given)


def check_output(file: Path) -> None:
    """Raise `ConfigError` unless --output names a file that can be written."""
    # Imported where used: the help needs no files.
    from mortal_steps.store.files import is_written_to, led_to

    # A file that is replaced needs a folder that may be written to, and need not be so itself.
    in_place, replaced = is_written_to(file), led_to(file)
    target = file if in_place else next(each for each in replaced.parents if each.exists())
    if file.is_dir():
        why = "is a folder"
    elif not in_place and replaced.is_symlink():
        why = "is a link that leads back to itself"
    elif not (in_place or target.is_dir()) or not os.access(target, os.W_OK):
        why = "cannot be written"
    else:
        return
    raise ConfigError(f"--output {file} {why}; name a file in a folder that you may write to")


def place_of_run(
    run_id: str | None, runs_dir: Path | None, overrides: Sequence[str], context: typer.Context
) -> dict[str, str]:
    """Return what `--run-id` and `--runs-dir` say of these keys, where no `--set` says otherwise:
    that beats the folder of the environment, and raises `ConfigError` beside an option."""
    from mortal_steps.plan.loader import MISSING, apply_override, find_key

    overridden: dict[str, Any] = {}
    for override in overrides:
        apply_override(overridden, override)
    given = {"run_id": run_id, "runs_dir": runs_dir}
    found: dict[str, str] = {}
    for key, value in given.items():
        other = find_key(overridden, key)
        if value is not None and (other is MISSING or type(value)(str(other)) == value):
            found[key] = str(value)
        elif value is not None and _is_written(context, key):
            option = f"--{key.replace('_', '-')} {value}"
            raise ConfigError(
                f"{option} and --set {key}={other} both set {key}; leave one of them out"
            )
    return found


def _is_written(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was given on the command line, not by the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


LARGEST_PORT = 65535
_runs_dir = typer.Option(
    "--runs-dir", metavar="DIR", help="Folder that holds all runs.", envvar=RUNS_DIR
)
RunsDir = Annotated[Path, _runs_dir]
WhereRunsGo = Annotated[Path | None, _runs_dir]
"""The same, where a configuration may name it, too."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Volume = Annotated[
    str | None,
    typer.Option(
        "--volume",
        metavar="NAME",
        help="Modal Volume that holds the run, such as mortal-runs. Default: this machine.",
        envvar="MORTAL_VOLUME",
    ),
]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of the run, as listed by `mortal runs`, or its folder."),
]
TriedConfig = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG", help="Configuration file. Default: that of `mortal train` without one."
    ),
]
override_option = partial(typer.Option, "--set", metavar="KEY=VALUE")
Overrides = Annotated[
    list[str] | None,
    override_option(help="Override a key, such as training.max_steps=20. May be repeated."),
]
FloatType = Literal["float32", "bfloat16", "float16"]
FLOAT_TYPES = "float32, bfloat16 or float16"
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Start the programs that the run directory names, even if another user or machine "
        "made it.",
    ),
]


def split_run(run: str, runs_dir: Path) -> tuple[Path, str]:
    """Return the runs folder and the run's id: a shell may complete an id to `runs/RUN`."""
    if os.sep not in run:
        return runs_dir, run
    return Path(run).parent, Path(run).name


def is_recipe_file(config: Path) -> bool:
    """Return whether a file holds a recipe. Only one that can be read does; whoever reads it next
    says what is wrong with another."""
    try:
        return b"[stages" in config.read_bytes()
    except OSError:
        return False


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each of `PANELS` in the place of its `**flags`."""
    parameters = [_parameter(flag, panel) for panel, flags in PANELS.items() for flag in flags]
    flagged: Callable[..., None] = in_place_of_flags(_pointing(command), parameters)
    return flagged


def _pointing(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command, whose errors name the file that lies beside the configuration where one
    that it names does not exist."""

    @functools.wraps(command)
    def pointing(**given: Any) -> None:
        try:
            command(**given)
        except MISSING_FILE as error:
            # Imported where used: the help needs no configuration.
            from mortal_steps.plan.hints import beside
            from mortal_steps.plan.loader import read_toml

            path = given.get("config")
            if path is None or (hint := beside(path, read_toml(path))) is None:
                raise
            raise type(error)(f"{error}\n{hint}") from error

    return pointing


MISSING_FILE = (DataError, ModelError, RewardError)
"""What is raised for a file that does not exist."""


def _parameter(flag: Flag, panel: str) -> inspect.Parameter:
    kind: Any = list[str] if flag.kind is list else flag.kind
    names = (flag.option,) if flag.kind is bool else ()  # and no --no-use-lora
    option = typer.Option(
        *names,
        metavar=flag.metavar,
        help=flag.description,
        rich_help_panel=panel,
        show_default=False,
    )
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )
