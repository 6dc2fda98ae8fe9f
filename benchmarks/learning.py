"""Do the shipped demos learn, for three seeds each? Runs them through the `mortal` command.

    python -m benchmarks.learning [--configs demo code ...] [--seeds 0 1 2] [--runs-dir DIR]

Exit code 1 if a claim does not hold:
    demo             mean reward of the last 20 steps >= first 20 + 0.5; greedy accuracy >= 0.9
    spell_backward   greedy accuracy on held-out words rises by >= 0.1 over the warm start
    code             mean reward of the last 20 steps >= first 20 + 0.3 and >= 0.8; greedy programs
                     pass >= 0.8 of the test cases of held-out problems
    agent            greedy share of held-out safes that are opened rises by >= 0.7, to >= 0.9
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.output import RESULTS, write_results

CONFIGS = Path(__file__).parent.parent / "deployments" / "configs"

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
    mortal = [sys.executable, "-m", "mortal"]
    run_id = f"{config}-{seed}".replace("_", "-")
    place = ["--runs-dir", str(runs_dir)]
    began = time.monotonic()
    command = ["train", str(CONFIGS / f"{config}.toml"), "--run-id", run_id, *place]
    subprocess.run([*mortal, *command, "--set", f"seed={seed}"], check=True)
    seconds = time.monotonic() - began
    shown = subprocess.run(
        [*mortal, "show", run_id, *place, "--json"], check=True, capture_output=True
    )
    summary = json.loads(shown.stdout)
    accuracy = ACCURACY[config]
    lines = (runs_dir / run_id / "evaluations.jsonl").read_text().splitlines()
    return Outcome(
        config=config,
        seed=seed,
        reward_first20=summary["reward_trend"]["first"],
        reward_last20=summary["reward_trend"]["last"],
        eval_start=json.loads(lines[0])[accuracy],
        eval_end=summary["eval"][accuracy],
        seconds=seconds,
        sha256=summary["final_weights_sha256"],
    )


def main() -> None:
    """Run them all, print a table, fail if a claim does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configs", nargs="+", default=[*ACCURACY])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--runs-dir", type=Path, help="default: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs_dir = arguments.runs_dir or Path(scratch)
        outcomes = [
            run(config, seed, runs_dir) for config in arguments.configs for seed in arguments.seeds
        ]
    heading = f"{'config':<16}{'seed':>5}{'reward first 20 -> last 20':>28}"
    print(f"\n{heading}{'greedy start -> end':>22}{'seconds':>9}  holds")
    for outcome in outcomes:
        rewards = f"{outcome.reward_first20:.3f} -> {outcome.reward_last20:.3f}"
        greedy = f"{outcome.eval_start:.3f} -> {outcome.eval_end:.3f}"
        print(
            f"{outcome.config:<16}{outcome.seed:>5}{rewards:>28}{greedy:>22}"
            f"{outcome.seconds:>9.0f}  {'yes' if outcome.holds else 'NO'}  {outcome.sha256[:12]}"
        )
    write_results(RESULTS / "learning.json", {"runs": outcomes})
    sys.exit(0 if all(outcome.holds for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
