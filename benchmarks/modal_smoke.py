"""Does a run work on Modal itself? Deploy, train two steps of a tiny model, fetch, say the price.

    python -m benchmarks.modal_smoke                    # make modal-smoke
    python -m benchmarks.modal_smoke --engine vllm      # the vLLM image, too

It needs a token of a Modal account and spends some cents of it; without one it says so and ends.
Nothing is compared: the tests do that, and what they cannot show is whether Modal builds images,
finds the GPUs and runs what it is given. The app has a name of its own, so that it replaces none
that runs are using; at the end app and run are removed, unless something failed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from modal.config import config as modal_config

from benchmarks.output import console, folder_for
from tests.support.chaos.project import write_project

APP = "mortal-smoke"
VOLUME = "mortal-runs"
NUM_STEPS = 2
GPU = "L4"
"""The cheapest that computes in bfloat16; a T4 emulates it, and is slow."""
ON_MODAL = f"""
[compute]
backend = "modal"

[compute.modal]
app = "{APP}"
actor = "{GPU}"
rollout = "{GPU}"
max_cost = 2.0
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="A run on Modal itself.")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    engine = parser.parse_args().engine
    if not modal_config.get("token_id"):
        console.print("skipped: this machine has no token of a Modal account; `modal setup`")
        return
    run_id = f"smoke-{time.strftime('%Y%m%d-%H%M%S')}"
    with folder_for("modal-smoke") as folder:
        shown = _train(folder, run_id, engine)
    _run(Path.cwd(), "modal", "app", "stop", APP, "--yes")
    _run(Path.cwd(), "modal", "volume", "rm", VOLUME, run_id, "--recursive")
    cost = shown["cost"]
    parts = ", ".join(f"{kind} {dollars:.4f}" for kind, dollars in cost["by_kind"].items())
    console.print(f"{run_id} is complete and was fetched: {shown['step']} steps, {engine}, {GPU}")
    console.print(f"cost, estimated: ${cost['total']:.4f} ({parts})")


def _train(folder: Path, run_id: str, engine: str) -> dict[str, Any]:
    """Deploy, train, and fetch as another machine would; what `mortal show` tells there."""
    write_project(folder)
    with (folder / "chaos.toml").open("a") as file:
        file.write(ON_MODAL)
    settings = [f"training.max_steps={NUM_STEPS}", f"rollout.engine={engine}"]
    overrides = [part for setting in settings for part in ("--set", setting)]
    _run(folder, "mortal", "deploy", "chaos.toml")
    _run(folder, "mortal", "train", "chaos.toml", "--run-id", run_id, *overrides)
    _run(folder, "mortal", "fetch", run_id, "--runs-dir", "fetched", "--volume", VOLUME)
    shown = json.loads(_run(folder, "mortal", "show", run_id, "--runs-dir", "fetched", "--json"))
    if shown["status"] != "completed" or not (folder / "fetched" / run_id / "final").is_dir():
        sys.exit(f"the run is not complete: {shown}")
    return dict(shown)


def _run(folder: Path, program: str, *arguments: str) -> str:
    """Return what it prints; its errors go to the terminal. Ends this process if it fails."""
    command = [sys.executable, "-m", program, *arguments]
    console.print(f"$ {program} {' '.join(arguments)}", markup=False)
    env = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n`{program} {arguments[0]}` failed with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
