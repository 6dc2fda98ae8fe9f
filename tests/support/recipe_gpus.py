"""Recipes whose stages hold GPUs that this machine does not have.

    python -m tests.support.recipe_gpus 2 train one.toml     `mortal train`, with two GPUs

Of the process of the recipe, what torch says about GPUs is made up. All else is as ever: a server,
a process for each stage, and what it writes down while it is there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.made_up_gpus import let_there_be, several
from tests.support.paths import ROOT

KIND = '''
import json, os, time
from pathlib import Path

from mortal.extend import MadeStage
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan


class Holds(MadeStage):
    """Holds the GPU that its table names for so many seconds, and writes down that it does."""

    outputs = {"": "folder"}

    def wanted(self, reference):
        return ("folder",)

    def parts(self):
        return self.values["seconds"]

    def check(self, stand_ins, say):
        pass

    def computes(self, job):
        devices = [self.values["gpu"]]
        config = parse_config({
            "model": {"new": {}},
            "data": {"source": "rows.jsonl"},
            "algorithm": {"type": "sft"},
            "compute": {"local": {"actor": {"devices": devices}}},
        })
        return Plan(config)

    async def make(self, job, work, out, say):
        end = time.monotonic() + self.values["seconds"]
        with open(os.environ["HELD"], "a") as held:
            while time.monotonic() < end:
                line = {"stage": job.id, "pid": os.getpid(), "at": time.time()}
                held.write(json.dumps(line) + "\\n")
                held.flush()
                time.sleep(0.02)
        (out / "done").touch()
        return {}
'''


def write_recipe(
    folder: Path, name: str, stages: dict[str, int], seconds: float, **limits: int
) -> None:
    """Write a recipe of `stages` that hold the GPU of this number for so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "holds.py").write_text(KIND)
    (folder / "rows.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    lines = [f'name = "{name}"', "[limits]", *(f"{key} = {it}" for key, it in limits.items())]
    for stage, gpu in stages.items():
        lines += [f"[stages.{stage}]", 'type = "holds.py:Holds"', f'gpu = "{gpu}"']
        lines += [f"seconds = {seconds}"]
    (folder / f"{name}.toml").write_text("\n".join(lines))


class Holders:
    """Recipes of one server, and what their stages have written down."""

    def __init__(self, folder: Path, api_url: str, environment: dict[str, str]) -> None:
        self.folder, self._file = folder, folder / "held.jsonl"
        paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        self._environment = {
            **environment,
            "PYTHONPATH": os.pathsep.join(paths),
            "PREFECT_API_URL": api_url,
            "HELD": str(self._file),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, *arguments: str, of: str, gpus: int = 2) -> subprocess.Popen[str]:
        """Begin a command of `mortal` in a recipe's folder, on a machine with so many GPUs."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.recipe_gpus", str(gpus), *arguments],
            cwd=self.folder / of,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def beats(self) -> list[dict]:
        """Return what was written down, in its order; a line that a kill has cut off is left."""
        if not self._file.exists():
            return []
        lines = self._file.read_text().split("\n")[:-1]
        return sorted(map(json.loads, lines), key=lambda beat: beat["at"])

    def held(self) -> dict[int, tuple[float, float]]:
        """Return from when until when each process has held a GPU, for certain."""
        spans: dict[int, tuple[float, float]] = {}
        for beat in self.beats():
            first, _ = spans.get(beat["pid"], (beat["at"], 0.0))
            spans[beat["pid"]] = (first, beat["at"])
        return spans

    def most_at_once(self) -> int:
        """Return how many processes held a GPU at the same time, at most."""
        spans = self.held().values()
        return max(sum(a <= at <= b for a, b in spans) for at, _ in spans)


def main() -> None:
    """Make up GPUs, and run the command."""
    from mortal.command import main as command

    with pytest.MonkeyPatch.context() as patched:
        let_there_be(patched, several(int(sys.argv[1])))
        sys.argv = ["mortal", *sys.argv[2:]]
        command()


if __name__ == "__main__":
    main()
