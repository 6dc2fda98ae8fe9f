"""Runs on a Ray cluster of three local nodes, hit again and again: do they end with the same bits?

    python -m benchmarks.ray_chaos                     # make chaos-ray
    python -m benchmarks.ray_chaos --faults 40 --seed 3

Workers, the processes of Ray that hold them, their bridges, whole machines, the head and the flow
are killed in the middle of what the workers' logs say that they do; machines and their raylets are
stopped until Ray has given them up, and go on later. The nodes are processes of this machine and
share its disk. Exits with 1 if a run ends with other bits than a local one that nothing happened
to, loses or doubles a train step, hangs, or if a worker that was replaced goes on.
"""

import argparse
import itertools
import os
import random
import sys
from collections.abc import Iterator

from benchmarks.chaos.report import report, told
from benchmarks.output import command_line, folder_for, say
from mortal.driver import QUIET_PREFECT
from tests.support.chaos.run import ChaosError
from tests.support.chaos.schedule import Shot, Volley
from tests.support.chaos.server import KillableServer
from tests.support.chaos.variant import Judged, Variant
from tests.support.cluster.faults import Fault, faults_of, lost_head
from tests.support.cluster.nodes import Cluster

WORKERS = {"actor-0": ("train_step", "checkpoint"), "rollout-0": ("generate", "sync_weights")}
"""Whom to hit, and in which stages."""


def main() -> None:
    args = _parse()
    os.environ.update(QUIET_PREFECT)
    judged: list[Judged] = []
    broken: list[str] = []
    try:
        with (
            folder_for("chaos-ray") as folder,
            KillableServer(folder) as server,
            Cluster(folder / "cluster") as cluster,
        ):
            os.environ.update(cluster.environment)
            others = {"head": lost_head(cluster)}
            for worker in WORKERS:
                others.update(faults_of(cluster, worker))
            variant = Variant(
                *("plain", folder, server, args.steps, say),
                settings=cluster.settings,
                others=others,
            )
            variant.reference()
            for run in variant.under_fire(_volleys(args.seed, args.faults, list(others))):
                judged.append(run)
                broken += told("on Ray", run)
    except ChaosError as error:
        broken.append(str(error))
    broken += Fault.unmended
    report({"on Ray": judged}, args.output, args.seed, broken)
    sys.exit(1 if broken else 0)


def _parse() -> argparse.Namespace:
    parser = command_line("ray_chaos", __doc__)
    parser.add_argument("--faults", type=int, default=20, help="so many, over all runs")
    parser.add_argument("--steps", type=int, default=240, help="train steps of each run")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    return parser.parse_args()


def _volleys(seed: int, count: int, others: list[str]) -> Iterator[Volley]:
    """Return faults, each kind as often as the others, in a stage that its worker knows."""
    rng = random.Random(seed)
    deck = itertools.chain.from_iterable(
        rng.sample(kinds, len(kinds)) for kinds in itertools.repeat([*others, "flow"])
    )
    for victim in itertools.islice(deck, count):
        worker = victim.rpartition(" of ")[2]
        stages = WORKERS.get(worker, ("train_step", "generate"))
        fraction = rng.uniform(0.0, 0.9)
        stage = rng.choice(stages)
        yield (Shot(victims=(victim,), stage=stage, moment="inside", fraction=fraction),)


if __name__ == "__main__":
    main()
