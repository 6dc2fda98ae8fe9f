"""How often does an interval hold the true rate? 95 % is what it promises.

    python -m benchmarks.coverage            # half a minute

Each problem has a rate of its own, drawn from a beta distribution around the true one, or has it
exactly where there is one completion each. The intervals: Wilson's over all completions, as if each
were a problem; the bootstrap over problems; that of the normal distribution over problems; and what
an evaluation is shown with (`interval_of`).
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import numpy as np

from benchmarks.output import command_line, console, results_table, write_results
from mortal_steps.statistics.intervals import Z, bootstrap, interval_of, wilson

SETTINGS = [
    *((200, 1, 0.5), (200, 1, 0.95), (200, 1, 0.995), (50, 1, 0.95)),
    *((200, 4, 0.5), (200, 4, 0.7), (200, 4, 0.95), (50, 4, 0.7)),
]
"""Problems, completions of each, true rate."""
CONCENTRATION = 2.0
"""Of the beta distribution of the problems' rates: most are far from the mean."""

Ends = tuple[float, float]
Scores = Sequence[float]
"""Of each problem: the share of its completions that are right."""


def over_completions(scores: Scores, k: int, seed: Sequence[int]) -> Ends:
    return wilson(round(sum(scores) * k), len(scores) * k)


def over_problems(scores: Scores, k: int, seed: Sequence[int]) -> Ends:
    return bootstrap(scores, seed)


def normal(scores: Scores, k: int, seed: Sequence[int]) -> Ends:
    half = Z * stdev(scores) / math.sqrt(len(scores))
    return fmean(scores) - half, fmean(scores) + half


def shown(scores: Scores, k: int, seed: Sequence[int]) -> Ends:
    found = interval_of(scores, seed)
    return (fmean(scores),) * 2 if found is None else (found.low, found.high)


KINDS: dict[str, Callable[[Scores, int, Sequence[int]], Ends]] = {
    "Wilson over completions": over_completions,
    "bootstrap over problems": over_problems,
    "normal over problems": normal,
    "shown": shown,
}


def main() -> None:
    parser = command_line("coverage", __doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows, told = [], []
    for number, (problems, k, rate) in enumerate(SETTINGS):
        held = dict.fromkeys(KINDS, 0)
        for trial in range(args.trials):
            seed = (args.seed, number, trial)
            scores = _drawn(np.random.default_rng(seed), problems, k, rate)
            for name, interval in KINDS.items():
                low, high = interval(scores, k, seed)
                held[name] += low <= rate <= high
        shares = {name: count / args.trials for name, count in held.items()}
        rows.append({"problems": problems, "k": k, "rate": rate, **shares})
        cells = {name: f"{share:.2f}" for name, share in shares.items()}
        told.append({"problems, k, true rate": f"{problems}, {k}, {rate:g}", **cells})
    console.print(results_table(f"intervals that hold the true rate, of {args.trials}", told))
    write_results(args.output, {"rows": rows})


def _drawn(dice: np.random.Generator, problems: int, k: int, rate: float) -> list[float]:
    rates = np.full(problems, rate)
    if k > 1:
        rates = dice.beta(rate * CONCENTRATION, (1 - rate) * CONCENTRATION, problems)
    return [float(count) / k for count in dice.binomial(k, rates)]


if __name__ == "__main__":
    main()
