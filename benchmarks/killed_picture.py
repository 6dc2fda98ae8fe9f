"""Draw a demo undisturbed, and the same demo killed with SIGKILL and resumed.

    python -m benchmarks.killed_picture [letters|smollm] [--steps 150] [--kills 4] [--output FILE]
                                        [--set KEY=VALUE ...]

Both runs are real `mortal` commands in a folder of their own. A kill hits every process of the
command at once, as a power cut would. The digests in the picture are those that the two
runs have recorded; the command fails if they, or any two rewards, differ.

    letters   the README's picture: a small model, killed after steps that are as far apart
    smollm    a pretrained model, killed while it samples, while it trains, and while the state of a
              later step is saved
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.output import folder_for
from mortal_steps.report.curve import WINDOW, means
from mortal_steps.runs.logs import METRICS, read_lines
from mortal_steps.runs.run import find_run

PICTURES = ROOT / "docs" / "pictures"
SAMPLING, TRAINING, SAVING = "generate", "train_step", "checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """A run to kill."""

    config: str
    steps: int
    kills: int
    """After how many steps, as far apart as possible, where `stages` names none."""
    is_long: bool
    """Whether the picture shows running means."""
    output: Path
    settings: Sequence[str] = ()
    stages: Sequence[tuple[int, str]] = ()
    """Train steps done, and the stage to kill in then."""


DEMOS = {
    "letters": Demo(
        config="deployments/configs/demo.toml",
        steps=150,
        kills=4,
        is_long=True,
        output=PICTURES / "killed.svg",
    ),
    "smollm": Demo(
        config="deployments/configs/smollm.toml",
        steps=20,
        kills=3,
        is_long=False,
        output=PICTURES / "killed-smollm.svg",
        settings=("checkpoints.save_steps=6",),
        stages=((3, SAMPLING), (8, TRAINING), (12, SAVING)),
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run has come to."""

    rewards: list[float]
    """Mean reward of each train step."""
    sha256: str
    """Digest of the final model."""
    killed_at: list[tuple[int, str]]
    """Train steps done at each kill, and the stage that it hit; empty where that is left open."""


class Ground:
    """A folder for the runs of a configuration, each of which starts a Prefect server there."""

    def __init__(self, folder: Path, config: str, settings: Sequence[str]) -> None:
        self._runs = folder / "runs"
        self._config = config
        self._options = [word for setting in settings for word in ("--set", setting)]
        self._env = {
            **{name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"},
            "MORTAL_STATE_DIR": str(folder / "state"),
            "PREFECT_HOME": str(folder / "prefect"),
            "HF_HUB_OFFLINE": "1",
        }

    def train(self, run_id: str, kill_at: Sequence[tuple[int, str]]) -> Outcome:
        """Run the demo; end it by SIGKILL after each of these steps, in its stage if one is named,
        and resume it."""
        command = ["train", self._config, "--run-id", run_id, *self._options]
        killed = []
        for step, stage in kill_at:
            process = self._mortal(*command)
            while not self._is_in(run_id, step, stage):
                if process.poll() is not None:
                    raise RuntimeError(f"{run_id} ended before step {step} {stage}")
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            killed.append((len(self._metrics(run_id)), stage))
            print(f"{run_id}: killed after step {killed[-1][0]} {stage}".rstrip(), flush=True)
            command = ["resume", run_id]
        if self._mortal(*command).wait() != 0:
            raise RuntimeError(f"{run_id} failed")
        final = find_run(self._runs, run_id).manifest.final
        assert final is not None
        print(f"{run_id}: sha256 {final.weights_sha256}")
        rewards = [row["reward"] for row in self._metrics(run_id)]
        return Outcome(rewards=rewards, sha256=final.weights_sha256, killed_at=killed)

    def _mortal(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in its own process group, so that a kill reaches its workers, too."""
        return subprocess.Popen(
            [sys.executable, "-m", "mortal", *words, "--runs-dir", str(self._runs)],
            cwd=ROOT,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def _is_in(self, run_id: str, step: int, stage: str) -> bool:
        """Whether so many steps are done, and the stage goes on that is named: a step's samples are
        there once they are whole, and so are its results and a checkpoint."""
        done = len(self._metrics(run_id))
        if done < step or not stage:
            return done >= step
        folder = self._runs / run_id / "steps" / f"{done:06d}"
        if stage == SAMPLING:
            return (folder / "batch.json").exists() and not any(folder.glob("generations-*"))
        if stage == TRAINING:
            return any(folder.glob("rewards-*")) and not (folder / "result.json").exists()
        return any((self._runs / run_id / "checkpoints").glob(".*"))

    def _metrics(self, run_id: str) -> list[dict[str, Any]]:
        return read_lines(self._runs / run_id / METRICS)


def draw(path: Path, undisturbed: Outcome, killed: Outcome, *, is_long: bool) -> None:
    """Write the picture as SVG: both rewards or their running means, the kills, the digests."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = means if is_long else list[float]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    steps = range(1, len(undisturbed.rewards) + 1)
    axes.plot(
        steps,
        shown(undisturbed.rewards),
        color="#9ecae1",
        linewidth=7,
        solid_capstyle="round",
        label=f"undisturbed: final model sha256 {undisturbed.sha256[:16]}…",
    )
    axes.plot(
        steps,
        shown(killed.rewards),
        color="#08306b",
        linewidth=1.6,
        label=f"killed {len(killed.killed_at)} times: final model sha256 {killed.sha256[:16]}…",
    )
    for number, (step, stage) in enumerate(killed.killed_at):
        axes.axvline(step, color="#d94801", linestyle="--", linewidth=1)
        said = f"kill -9 in {stage}" if stage else "kill -9"
        axes.annotate(
            said if number else f"{said}, mortal resume",
            (step, 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            color="#d94801",
            fontsize=8,
        )
    label = f"reward, mean of {WINDOW} steps" if is_long else "reward"
    axes.set(xlabel="train step", ylabel=label, xlim=(1, len(steps)))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left", prop={"family": "monospace", "size": 8}, framealpha=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date and with fixed ids, the same runs give the same file.
    with rc_context({"svg.hashsalt": "mortal"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Run both, compare them, draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("demo", nargs="?", choices=[*DEMOS], default="letters")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--kills", type=int, help="of letters")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--set", action="append", default=[], help="of both runs", dest="settings")
    parser.add_argument("--keep", type=Path, help="folder for the runs; it must not exist")
    options = parser.parse_args()
    demo = DEMOS[options.demo]
    steps, kills = options.steps or demo.steps, options.kills or demo.kills
    apart = [(steps * kill // (kills + 1), "") for kill in range(1, kills + 1)]
    kill_at = [(step, stage) for step, stage in demo.stages if step < steps] or apart
    settings = [f"training.max_steps={steps}", *demo.settings, *options.settings]
    with folder_for("mortal-picture", keep=options.keep) as folder:
        ground = Ground(folder, demo.config, settings)
        undisturbed = ground.train("undisturbed", [])
        killed = ground.train("killed", kill_at)
    if undisturbed.rewards != killed.rewards or undisturbed.sha256 != killed.sha256:
        sys.exit("the two runs differ")
    output = options.output or demo.output
    draw(output, undisturbed, killed, is_long=demo.is_long)
    print(f"drawn: {output}")


if __name__ == "__main__":
    main()
