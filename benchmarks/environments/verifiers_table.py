"""Environments of verifiers, v0 and v1, in interpreters of their own (`make verifiers-env`).

Each comes with verifiers or is on PyPI, but for the games of reasoning_gym and Hangman (v0), whose
ids are the few lines in `packages`. What else there is lies on verifiers' own hub.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.environments.table import Tried

GYMS = (
    *("leg_counting", "chain_sum", "spell_backward", "letter_counting"),
    *("simple_equations", "number_sorting", "gcd", "lcm", "basic_arithmetic"),
)
NUMBERS = ("12", "It is 7.", "3")


def _verifiers(
    version: str, name: str, says: Sequence[str], args: str = "", more: str = ""
) -> Tried:
    config = f'type = "verifiers"\nid = "{name}"'
    if args:
        config += f"\nargs = {args}"
    what = f"verifiers {version}: {name}{f' {more}' if more else ''}"
    return Tried(name=what, package="verifiers", config=config, says=says, version=version)


VERIFIERS: Sequence[Tried] = (
    *(
        _verifiers("v1", "textarena", says, f'{{taskset = {{game = "{game}"}}}}', game)
        for game, says in {
            "Hangman-v0": ("[e]", "I try [a].", "[s]"),
            "WordSearch-v0": ("[1 2 1 6]", "[3 3 8 3]"),
        }.items()
    ),
    *(_verifiers("v1", "gym-v1", NUMBERS, f'{{taskset = {{gym = "{gym}"}}}}', gym) for gym in GYMS),
    _verifiers("v0", "sophistry-bench-sprint", ("A", "B", "The answer is A.")),
    _verifiers("v0", "stardata.envs.constraint_gym", ("An old silent pond", "Roses are red")),
    _verifiers("v0", "hangman-v0", ("<guess>[e]</guess>", "<guess>[a]</guess>")),
    *(
        _verifiers(
            *("v0", "gym-v0", [f"<answer>{each}</answer>" for each in NUMBERS]),
            *(f'{{gym = "{gym}"}}', gym),
        )
        for gym in GYMS
    ),
)
