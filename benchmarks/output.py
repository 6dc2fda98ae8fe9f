"""Where results go: a table on the terminal, and a JSON file that names the machine as well."""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("prefect", "trl", "transformers", "torch")

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 150)


def say(line: str) -> None:
    """Print a line with the time of day."""
    console.print(f"{time.strftime('%H:%M:%S')}  {line}", markup=False)


@contextlib.contextmanager
def folder_for(
    name: str, *, keep: Path | None = None, within: Path | None = None
) -> Iterator[Path]:
    """Yield the folder to `keep`, which must not exist; without one, a temporary folder, `within`
    another one if that is named."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.absolute()
    else:
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=within) as temporary:
            yield Path(temporary)


def results_table(
    title: str, rows: Sequence[Mapping[str, str]], left: Collection[str] = ()
) -> Table:
    """Return a table of the rows, whose cells are by heading: numbers stand on the right, the
    columns in `left` on the left."""
    table = Table(title=title, title_justify="left")
    for heading in rows[0] if rows else ():
        table.add_column(heading, justify="left" if heading in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    return table


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks.NAME`, with `--output`, by default
    `results/NAME.json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = RESULTS / f"{name.replace('.', '-')}.json"
    parser.add_argument("--output", type=absolute_path, default=default)
    return parser


def absolute_path(name: str) -> Path:
    """Return what an option names, wherever the process goes later."""
    return Path(name).absolute()


def write_results(path: Path, results: Mapping[str, Any], *, told: bool = True) -> None:
    """Write the results, dataclasses as objects, and what they were measured on; with `told`, print
    where they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": _machine(), **results}
    content = json.dumps(record, indent=1, default=dataclasses.asdict)
    path.write_text(content + "\n", encoding="utf-8")
    if told:
        console.print(f"\nwritten to {path}")


def _machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def version_of(package: str) -> str | None:
    """Return the version that is installed; None for what is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
