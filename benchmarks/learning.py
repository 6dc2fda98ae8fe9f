"""Do the shipped demos learn, for three seeds each? Runs them through the `mortal` command.

    python -m benchmarks.learning [--configs demo code ...] [--seeds 0 1 2] [--runs-dir DIR]

Exit code 1 if a claim does not hold:
    demo             mean reward of the last 20 steps >= first 20 + 0.5; greedy accuracy >= 0.9
    spell_backward   greedy accuracy on held-out words rises by >= 0.1 over the warm start
    code             mean reward of the last 20 steps >= first 20 + 0.3 and >= 0.8; greedy programs
                     pass >= 0.8 of the test cases of held-out problems
    agent            greedy share of held-out safes that are opened rises by >= 0.7, to >= 0.9
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import ROOT
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from mortal_steps.report.summary import summarize
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import find_run

CONFIGS = ROOT / "deployments" / "configs"

ACCURACY = {
    "demo": "exact_match",
    "spell_backward": "reasoning_gym_solved",
    "code": "passed",
    "agent": "Safe",
}
"""By which held-out problems are judged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one run reached."""

    config: str
    seed: int
    reward_first20: float
    reward_last20: float
    eval_start: float
    """Greedy accuracy on held-out problems before the first step; of programs, the reward."""
    eval_end: float
    seconds: float
    """Wall time of the whole command."""
    sha256: str

    @property
    def holds(self) -> bool:
        """Whether what the README says of this demo is true of this run."""
        if self.config == "demo":
            return self.reward_last20 >= self.reward_first20 + 0.5 and self.eval_end >= 0.9
        if self.config == "code":
            risen = self.reward_last20 >= max(0.8, self.reward_first20 + 0.3)
            return risen and self.eval_end >= 0.8
        if self.config == "agent":
            return self.eval_end >= max(0.9, self.eval_start + 0.7)
        return self.eval_end >= self.eval_start + 0.1


def run(config: str, seed: int, runs_dir: Path) -> Outcome:
    """One run of a shipped configuration."""
    run_id = f"{config}-{seed}".replace("_", "-")
    began = time.monotonic()
    command = [sys.executable, "-m", "mortal", "train", str(CONFIGS / f"{config}.toml")]
    options = ["--run-id", run_id, "--runs-dir", str(runs_dir), "--set", f"seed={seed}"]
    subprocess.run([*command, *options], check=True)
    seconds = time.monotonic() - began
    trained = find_run(runs_dir, run_id)
    summary, evaluations = summarize(trained), trained.logs.read(EVALUATIONS)
    assert summary.reward_trend and summary.final_weights_sha256
    return Outcome(
        config=config,
        seed=seed,
        reward_first20=summary.reward_trend["first"],
        reward_last20=summary.reward_trend["last"],
        eval_start=evaluations[0][ACCURACY[config]],
        eval_end=evaluations[-1][ACCURACY[config]],
        seconds=seconds,
        sha256=summary.final_weights_sha256,
    )


def main() -> None:
    """Run them all, print a table, fail if a claim does not hold."""
    parser = command_line("learning", __doc__)
    parser.add_argument("--configs", nargs="+", default=[*ACCURACY])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs-dir", type=Path, help="default: a temporary folder")
    arguments = parser.parse_args()
    with folder_for("learning") as folder:
        runs_dir = arguments.runs_dir or folder
        outcomes = [
            run(config, seed, runs_dir) for config in arguments.configs for seed in arguments.seeds
        ]
    rows = [
        {
            "config": outcome.config,
            "seed": str(outcome.seed),
            "reward first 20 -> last 20": f"{outcome.reward_first20:.3f} -> "
            f"{outcome.reward_last20:.3f}",
            "greedy start -> end": f"{outcome.eval_start:.3f} -> {outcome.eval_end:.3f}",
            "seconds": f"{outcome.seconds:.0f}",
            "holds": "yes" if outcome.holds else "NO",
            "sha256": outcome.sha256[:12],
        }
        for outcome in outcomes
    ]
    console.print(results_table("what the demos learned", rows, left=["config"]))
    write_results(arguments.output, {"runs": outcomes})
    sys.exit(0 if all(outcome.holds for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
