"""Where results go: a table on the terminal, and a JSON file that names the machine as well."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("prefect", "trl", "transformers", "torch")

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 150)


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results and what they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": _machine(), **results}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(f"\nwritten to {path}")


def _machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
