"""Kill runs at every stage, compare what they end with, print where and what it cost.

    python -m benchmarks.chaos                      # every variant, 200 kills or more
    python -m benchmarks.chaos --variants plain lora --kills 30 --seed 5
    python -m benchmarks.chaos --agents             # models that call tools, killed inside episodes
    python -m benchmarks.chaos --variants sft dpo opd --kills 60    # from rows, from teachers
    python -m benchmarks.chaos --selections --kills 60          # runs that select what they sample

Exits with 1 if a run ends with other bits than the run that nothing happened to, loses or doubles
a train step, samples or scores more again than was in flight at a kill, hangs or cannot be resumed.
"""

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.report import report, told
from benchmarks.output import command_line, folder_for, say
from mortal.driver import QUIET_PREFECT
from tests.support.chaos import agents, rows, selections
from tests.support.chaos.project import AGENTS, ROWS, SELECTIONS, VARIANTS
from tests.support.chaos.run import ChaosError
from tests.support.chaos.schedule import Volley, at_ranks, at_teachers, volleys
from tests.support.chaos.server import KillableServer
from tests.support.chaos.variant import Judged, Variant

OTHERS_OF = {"ranks": at_ranks, "opd": at_teachers}
"""By variant: the same kills, of processes that it alone has."""


def main() -> None:
    args = _parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    os.environ.update(QUIET_PREFECT)
    judged: dict[str, list[Judged]] = {name: [] for name in args.variants}
    faults: list[str] = []
    with folder_for("chaos", keep=args.keep) as folder, KillableServer(folder) as server:
        for name, hand in _hands(args).items():
            try:
                variant = Variant(name, folder, server, args.steps, say)
                hand = OTHERS_OF.get(name, list)(hand)
                with variant.game():
                    variant.reference()
                    for run in variant.under_fire(hand):
                        judged[name].append(run)
                        faults += told(name, run)
            except ChaosError as error:
                faults.append(f"{name}: {error}")
                say(f"BROKEN {faults[-1]}")
    report(judged, args.output, args.seed, faults)
    sys.exit(1 if faults else 0)


def _parse() -> argparse.Namespace:
    parser = command_line("chaos", __doc__)
    parser.add_argument("--kills", type=int, default=200, help="at least so many, over all runs")
    parser.add_argument("--steps", type=int, default=36, help="train steps of each run")
    parser.add_argument("--seed", type=int, default=0, help="of the kill schedule")
    parser.add_argument("--agents", action="store_true", help="kill inside episodes with tools")
    parser.add_argument("--selections", action="store_true", help="kill runs that select")
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=[*VARIANTS, *AGENTS, *ROWS, *SELECTIONS],
        help="default: all",
    )
    parser.add_argument("--keep", type=Path, help="folder for the runs; it must not exist")
    args = parser.parse_args()
    if 0 < len(SELECTIONS.keys() & (args.variants or ())) < len(args.variants):
        parser.error(f"--variants {' '.join(SELECTIONS)} have kills of their own; run them alone")
    default = AGENTS if args.agents else SELECTIONS if args.selections else VARIANTS
    args.variants = args.variants or list(default)
    return args


def _hands(args: argparse.Namespace) -> dict[str, list[Volley]]:
    """Return the kills of each variant."""
    names, found = args.variants, dict[str, list[Volley]]()
    if args.agents or set(names) <= SELECTIONS.keys():
        kind = agents if args.agents else selections
        return dict(zip(names, kind.hands(args.seed, args.kills, names), strict=True))
    of_rows = [name for name in names if name in ROWS]  # these have no reward workers to kill
    others = [name for name in names if name not in ROWS]
    for hands_of, mine in ((rows.hands, of_rows), (_dealt, others)):
        if mine:
            kills = math.ceil(args.kills * len(mine) / len(names))
            found.update(zip(mine, hands_of(args.seed, kills, mine), strict=True))
    return {name: found[name] for name in names}


def _dealt(seed: int, kills: int, names: Sequence[str]) -> list[list[Volley]]:
    chosen = list(volleys(seed, kills))
    return [chosen[number :: len(names)] for number in range(len(names))]


if __name__ == "__main__":
    main()
