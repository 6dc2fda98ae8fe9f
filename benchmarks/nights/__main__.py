"""Seven nights that nobody watches: scheduled runs under fire, notices, promotions.

    python -m benchmarks.nights                          # 7 nights, 31 faults: some 20 minutes
    python -m benchmarks.nights --nights 2 --faults 6

A Prefect server and a worker run as units of a machine that starts them again when they end. The
schedule of the deployment `nightly` fires a run every few minutes, each from the model in
production; `promote` is fired by its own trigger and decides by a threshold. Faults come at steps
that a seed has chosen. Two nights are planted: in one the policy falls apart, in the other it
unlearns what the held-out problems ask for. Afterwards each night is trained once more in a quiet
place. Exits with 1 if a night was lost or ended with other bits, a notice or a promotion is
missing, or a planted night was promoted.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.nights.cluster import BLOCK, PAUSE_S, SILENCE_S, Cluster, cluster
from benchmarks.nights.judge import LATENCY_S
from benchmarks.nights.night import Night, Watch, flow_runs, next_night
from benchmarks.nights.plan import FAULTS, NightPlan, plan
from benchmarks.nights.project import (
    DEPLOYMENTS,
    settings,
    write_deployments,
    write_settings,
)
from benchmarks.nights.table import faults_table, nights_table
from benchmarks.nights.verdict import Verdict, judged, wait_for_promotion
from benchmarks.output import command_line, console, folder_for, say, write_results

SKIPPED = "skipped: "
"""In the state of a night that could only begin too late."""
EVENING_STEPS = 3
"""The run of the evening before is so many times as long as a night."""


def main() -> None:
    """Spend the nights, judge them, print, write down."""
    args = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    plans = plan(args.nights, args.faults, args.steps, args.seed, args.without)
    began = time.monotonic()
    with (
        folder_for("nights") as folder,
        cluster(folder, with_disk="disk" not in args.without) as here,
    ):
        _set_up(here, args.steps, args.interval_s)
        here.judge.latency_s = LATENCY_S
        nights, skipped, promotions = _nights(here, plans)
        here.judge.latency_s = 0.0
        verdicts = judged(here, nights, promotions, folder)
    _report(args, verdicts, skipped, time.monotonic() - began)
    sys.exit(1 if any(verdict.faults for verdict in verdicts) else 0)


def _parse() -> argparse.Namespace:
    parser = command_line("nights", __doc__)
    parser.add_argument("--nights", type=int, default=7)
    parser.add_argument("--faults", type=int, default=31, help="over all nights")
    parser.add_argument("--steps", type=int, default=16, help="train steps of a night")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and their steps")
    parser.add_argument(
        "--interval-s", type=float, default=150.0, help="seconds from one night to the next"
    )
    parser.add_argument(
        "--without", nargs="+", default=[], choices=FAULTS, help="kinds of faults to leave out"
    )
    return parser.parse_args()


def _set_up(here: Cluster, steps: int, interval_s: float) -> None:
    """Do what the user does before the first night: train a first model, and deploy."""
    say("the evening before: a first model")
    write_settings(here.project, settings(EVENING_STEPS * steps, "good", first=True))
    here.command("mortal", "train", "nights.toml", "--run-id", "evening")
    here.command("mortal", "promote", "evening", "--yes")
    anchor = datetime.now(UTC) + timedelta(seconds=30)
    write_deployments(here.project, interval_s, anchor.isoformat())
    write_settings(here.project, settings(steps, "good"))
    here.command("prefect", "--no-prompt", "deploy", "--all", "--prefect-file", DEPLOYMENTS)
    times = ("--silence-s", f"{SILENCE_S:g}", "--pause-s", f"{PAUSE_S:g}")
    here.command("mortal", "automate", *times, "--notify", f"custom-webhook/{BLOCK}")


def _nights(here: Cluster, plans: Sequence[NightPlan]) -> tuple[list[Night], int, dict[str, str]]:
    """Return the nights, how many were skipped because they could only begin too late, and what was
    decided."""
    nightly = here.ask("GET", "/deployments/name/grpo-train/nightly")["id"]
    promote = here.ask("GET", "/deployments/name/promote/promote")["id"]
    nights: list[Night] = []
    for each in plans:
        write_settings(here.project, settings(each.steps, each.kind))
        night = next_night(here, nightly, time.time(), each)
        say(f"night {each.number} ({each.kind}): {night.run_id}, {len(each.faults)} faults")
        nights.append(Watch(here, night).to_its_end())
        say(f"night {each.number}: {night.state} after {night.seconds:.0f} s")
    promotions = {night.run_id: wait_for_promotion(here, night, promote) for night in nights}
    skipped = [
        each
        for each in flow_runs(here, nightly)
        if each["state"]["type"] == "CANCELLED" and SKIPPED in (each["state"]["message"] or "")
    ]
    return nights, len(skipped), promotions


def _report(
    args: argparse.Namespace, verdicts: Sequence[Verdict], skipped: int, seconds: float
) -> None:
    for table in (nights_table(verdicts), faults_table(verdicts)):
        console.print(f"\n{table}", markup=False)
    struck = sum(len(verdict.night.struck) for verdict in verdicts)
    console.print(
        f"\n{len(verdicts)} nights, {struck} faults, {skipped} nights skipped, "
        f"which could only begin too late, seed {args.seed}, {seconds / 60:.1f} minutes"
    )
    for verdict in verdicts:
        for fault in verdict.faults:
            console.print(f"  night {verdict.night.plan.number}: {fault}", markup=False)
    results = {"seed": args.seed, "seconds": seconds, "skipped": skipped, "nights": list(verdicts)}
    write_results(args.output, results)


if __name__ == "__main__":
    main()
