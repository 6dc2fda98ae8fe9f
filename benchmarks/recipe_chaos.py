"""Kill a recipe in its stages and between them: does each stage end with the same bits?

    python -m benchmarks.recipe_chaos                  # 20 kills in each stage, 20 between two
    python -m benchmarks.recipe_chaos --kills 4 --seed 3

The tiny recipe of the tests (sft, a reward model, GRPO with it, a gate) is run undisturbed. Then it
is begun again and again in other folders, and killed on its way: the process that drives the
recipe, that of the stage, both at once, or the Prefect server, which comes back. Moments are drawn
from the time that each stage took undisturbed. A kill counts where it hit, by the recipe's record.
Exits with 1 if a stage ends with other bits, a step is doubled or lost, or a flow run or a process
is left.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.output import command_line, console, folder_for, results_table, say, write_results
from mortal.driver import QUIET_PREFECT
from tests.support.chaos.recipe import (
    END,
    PLACES,
    Broken,
    Kill,
    RecipeUnderFire,
    aims,
    at,
)
from tests.support.chaos.server import KillableServer

VICTIMS = ("recipe", "stage", "both", "server")


def main() -> None:
    args = _parse()
    os.environ.update(QUIET_PREFECT, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    killed: Counter[Kill] = Counter()
    with folder_for("recipe-chaos", keep=args.keep) as folder, KillableServer(folder) as server:
        recipes, faults = _campaign(folder, server, args.kills, random.Random(args.seed), killed)
    _report(killed)
    results: dict[str, Any] = {"seed": args.seed, "recipes": recipes, "faults": faults}
    kills = [{"killed": one.victim, "in": one.place, "times": killed[one]} for one in killed]
    write_results(args.output, {**results, "kills": kills})
    say(f"{killed.total()} kills, {recipes} recipes, seed {args.seed}")
    say("\n".join(faults) or "every stage ended with the same bits")
    sys.exit(1 if faults else 0)


def _campaign(
    folder: Path, server: KillableServer, wanted: int, drawn: random.Random, killed: Counter[Kill]
) -> tuple[int, list[str]]:
    """Kill recipes until each place was hit so often; return how many there were, and faults."""
    undisturbed = RecipeUnderFire(folder / "undisturbed", server, drawn)
    undisturbed.finish()
    digests, lasted = undisturbed.made(), undisturbed.lasted()
    say(f"undisturbed: {digests}")
    say("seconds: " + ", ".join(f"{place} {seconds:.1f}" for place, seconds in lasted.items()))
    number, faults = 0, list[str]()
    while any(at(killed, place) < wanted for place in PLACES):
        number += 1
        recipe = RecipeUnderFire(folder / f"fire-{number}", server, drawn)
        try:
            for aim, part in aims(drawn, killed, wanted):
                hit = recipe.strike(aim, part * lasted[aim.place])
                say(f"{number}: {_in_words(aim, hit)}")
                killed.update([hit] if hit else [])
            recipe.finish()
            found = recipe.made()
            if found != digests:
                raise Broken(f"ends with {found}")
            say(f"{number}: the same bits")
        except Broken as error:
            faults.append(f"recipe {number}: {error}")
            say(f"BROKEN {faults[-1]}")
        finally:
            recipe.end()
    return number, faults


def _in_words(aim: Kill, hit: Kill | None) -> str:
    aimed = f"{aim.victim}, {aim.place}"
    return f"{aimed}: missed" if hit is None else aimed if hit == aim else f"{aimed}: hit {hit}"


def _report(killed: Mapping[Kill, int]) -> None:
    """Print how often what was killed where."""
    places = [*PLACES, *([END] if any(one.place == END for one in killed) else [])]
    rows = []
    for victim in (*VICTIMS, "all"):
        mine = {one: n for one, n in killed.items() if victim in (one.victim, "all")}
        hit = {place: sum(n for one, n in mine.items() if one.place == place) for place in places}
        hit["all"] = sum(hit.values())
        rows.append({"what": victim, **{place: str(times) for place, times in hit.items()}})
    console.print(results_table("killed in", rows, left=("what",)))


def _parse() -> argparse.Namespace:
    parser = command_line("recipe_chaos", __doc__)
    parser.add_argument("--kills", type=int, default=20, help="in each stage, and between two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the recipes; it must not exist")
    return parser.parse_args()


if __name__ == "__main__":
    main()
