"""Take the pictures of docs/pictures/prefect: a run of the demo's deployment in Prefect's pages.

    python -m benchmarks.screenshots [--steps 120] [--chromium /usr/bin/chromium] [--output FOLDER]

Everything is real: a Prefect server, a worker, the shipped deployments, a headless Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.jobs import ROOT, own_server
from benchmarks.nights.receiver import Receiver
from benchmarks.screenshots.night import Prefect, train
from benchmarks.screenshots.pages import take

OUTPUT = ROOT / "docs" / "pictures" / "prefect"


def main() -> None:
    """Train, then look at it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.screenshots", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--steps", type=int, default=120, help="train steps of the run")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the PNG files")
    options = parser.parse_args()
    if not options.chromium:
        parser.error("no chromium on this machine: apt-get install chromium, or --chromium PATH")
    with tempfile.TemporaryDirectory() as folder, own_server(Path(folder)) as server:
        receiver = Receiver()
        prefect = Prefect(server.api_url)
        night = train(prefect, server.ui_url, Path(folder), options.steps, receiver)
        for path in take(night, options.chromium, options.output):
            print(path)


if __name__ == "__main__":
    main()
