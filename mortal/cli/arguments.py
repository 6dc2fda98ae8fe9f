"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsDir = Annotated[
    Path, typer.Option("--runs-dir", help="Folder of all runs.", envvar="MORTAL_RUNS_DIR")
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="Port of mortal's own Prefect server; 0 takes any free one."
    ),
]
KeepServer = Annotated[
    bool, typer.Option("--keep-server", help="Leave mortal's own Prefect server running.")
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
RunId = Annotated[str, typer.Argument(help="Run id, as `mortal runs` lists it.")]
