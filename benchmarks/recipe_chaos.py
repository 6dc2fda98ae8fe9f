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

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.output import (
    add_output_option,
    console,
    folder_for,
    results_table,
    write_results,
)
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
    with folder_for(args.keep, "recipe-chaos") as folder, KillableServer(folder) as server:
        recipes, faults = _campaign(folder, server, args.kills, random.Random(args.seed), killed)
    _report(killed)
    results: dict[str, Any] = {"seed": args.seed, "recipes": recipes, "faults": faults}
    kills = [{"killed": one.victim, "in": one.place, "times": killed[one]} for one in killed]
    write_results(args.output, {**results, "kills": kills})
    _say(f"{killed.total()} kills, {recipes} recipes, seed {args.seed}: ")
    _say("\n".join(faults) or "every stage ended with the same bits")
    sys.exit(1 if faults else 0)


def _campaign(
    folder: Path, server: KillableServer, wanted: int, drawn: random.Random, killed: Counter[Kill]
) -> tuple[int, list[str]]:
    """Kill recipes until each place was hit so often; return how many there were, and faults."""
    undisturbed = RecipeUnderFire(folder / "undisturbed", server, drawn)
    undisturbed.finish()
    digests, lasted = undisturbed.made(), undisturbed.lasted()
    _say(f"undisturbed: {digests}")
    _say("seconds: " + ", ".join(f"{place} {seconds:.1f}" for place, seconds in lasted.items()))
    number, faults = 0, list[str]()
    while any(at(killed, place) < wanted for place in PLACES):
        number += 1
        recipe = RecipeUnderFire(folder / f"fire-{number}", server, drawn)
        try:
            for aim, part in aims(drawn, killed, wanted):
                hit = recipe.strike(aim, part * lasted[aim.place])
                _say(f"{number}: {_in_words(aim, hit)}")
                killed.update([hit] if hit else [])
            recipe.finish()
            found = recipe.made()
            if found != digests:
                raise Broken(f"ends with {found}")
            _say(f"{number}: the same bits")
        except Broken as error:
            faults.append(f"recipe {number}: {error}")
            _say(f"BROKEN {faults[-1]}")
        finally:
            recipe.end()
    return number, faults


def _in_words(aim: Kill, hit: Kill | None) -> str:
    aimed = f"{aim.victim}, {aim.place}"
    return f"{aimed}: missed" if hit is None else aimed if hit == aim else f"{aimed}: hit {hit}"


def _report(killed: Mapping[Kill, int]) -> None:
    """Print how often what was killed where."""
    places = [*PLACES, *([END] if any(one.place == END for one in killed) else [])]
    table = results_table("killed in", "what", *places, "all", left=("what",))
    for victim in (*VICTIMS, "all"):
        mine = {one: n for one, n in killed.items() if victim in (one.victim, "all")}
        row = [sum(n for one, n in mine.items() if one.place == place) for place in places]
        table.add_row(victim, *map(str, (*row, sum(row))))
    console.print(table)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recipe_chaos", description="A recipe killed in its stages."
    )
    parser.add_argument("--kills", type=int, default=20, help="in each stage, and between two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the recipes; it must not exist")
    add_output_option(parser, "recipe_chaos")
    return parser.parse_args()


def _say(line: str) -> None:
    console.print(line, highlight=False, markup=False)


if __name__ == "__main__":
    main()
