"""The environments that are tried: what a run's file says of each, and what a model says to it.

A tiny model never makes a move that a game understands. So an engine says at random what stands
here, split into tokens at random, and the model is trained on it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NUMBERS = ("[3]", "[5]", "[11]", "I say [7].")
BOXED = ("\\boxed{3}", "\\boxed{5}", "It is \\boxed{7}.")
MOVES = ("[right]", "[down]", "[up]", "Then [left].")
CELLS = ("[1 2]", "[0 3]", "[2 2]")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """An environment."""

    name: str
    package: str
    """What brings it, by its name on PyPI."""
    config: str
    """`[environment]`, as a run's file has it."""
    says: Sequence[str] = ()
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    """The dataset. Without one, `reset` gives the prompts."""
    version: str = ""
    """`v0` or `v1`: it lives in an interpreter of verifiers, and brings its rows."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """Python that serves it, as for `served`, by what has the address: `url`, or a variable."""
    reward: str = ""
    """A reward function. Default: what it gives itself."""

    @property
    def settings(self) -> dict[str, Any]:
        """The table, read."""
        return tomllib.loads(self.config)

    @property
    def num_lines(self) -> int:
        """Lines of configuration."""
        return len(self.config.strip().splitlines()) + bool(self.reward)


def _textarena(name: str, *says: str) -> Tried:
    config = f'type = "textarena"\nid = "{name}"'
    return Tried(name=name, package="textarena", config=config, says=says)


def _gem(name: str, *says: str) -> Tried:
    return Tried(name=name, package="gem-llm", config=f'type = "gem"\nid = "{name}"', says=says)


def _skyrl(name: str) -> Tried:
    asked = [("What is 3 + 4?", "7"), ("What is 5 + 6?", "11")]
    rows = [
        {
            "prompt": [{"role": "user", "content": question}],
            "env_class": name,
            "reward_spec": {"method": "rule", "ground_truth": answer},
            "extra_info": {"max_turns": 4},
        }
        for question, answer in asked
    ]
    says = ("#### 7", "It is 11.\n#### 11", "No idea.")
    return Tried(name=name, package="skyrl-gym", config='type = "skyrl"', says=says, rows=rows)


TABLE: Sequence[Tried] = (
    _textarena("2048-v0-ultra-easy", *MOVES),
    _textarena("Bandit-v0", "[red]", "[blue]"),
    _textarena("Blackjack-v0", "[hit]", "[stand]"),
    _textarena("Countdown-v0", "[0 1 +]", "[2 3 *]"),
    _textarena("Cryptarithm-v0", "[S 9]", "[M 1]", "[O 0]"),
    _textarena("FifteenPuzzle-v0", *MOVES),
    _textarena("FrozenLake-v0", *MOVES),
    _textarena("GuessTheNumber-v0", *NUMBERS),
    _textarena("LightsOut-v0", *CELLS),
    _textarena("Hangman-v0", "[e]", "[a]", "[s]"),
    _textarena("WordSearch-v0", "[1 2 1 6]", "[3 3 8 3]"),
    _textarena("Mastermind-v0", "[1 2 3 4]", "[6 5 4 3]"),
    _textarena("Minesweeper-v0-small", "[reveal 1 2]", "[flag 0 3]"),
    _textarena("PegJump-v0", "[12 5]", "[3 5]"),
    _textarena("Secretary-v0", "[continue]", "[accept]"),
    _textarena("Slitherlink-v0", "[h 0 0]", "[v 1 2]"),
    _textarena("Sokoban-v0", *MOVES),
    _textarena("Sudoku-v0-very-easy", "[1 2 3]", "[4 5 6]"),
    _textarena("ThreeCardMonte-v0", "[0]", "[2]"),
    _textarena("TowerOfHanoi-v0", "[A C]", "[A B]", "[C B]"),
    _gem("game:GuessTheNumber-v0-easy", *BOXED),
    _gem("game:Mastermind-v0-easy", "\\boxed{12}", "\\boxed{34}"),
    _gem("game:Minesweeper-v0-easy", "\\boxed{reveal 1 2}", "\\boxed{flag 0 3}"),
    _gem("game:FifteenPuzzle-v0-easy", "\\boxed{up}", "\\boxed{left}"),
    _gem("game:Sudoku-v0-easy", "\\boxed{1 2 3}", "\\boxed{4 1 2}"),
    _gem("game:TowerofHanoi-v0-easy", "\\boxed{A C}", "\\boxed{A B}"),
    _gem("game:Game2048-v0-easy", "\\boxed{up}", "\\boxed{left}"),
    _gem("game:Sokoban-v0-easy", "\\boxed{up}", "\\boxed{left}"),
    _gem("game:Crosswords-v0-easy", "\\boxed{0 0 A}", "\\boxed{1 2 E}"),
    _gem("game:Wordle-v0-easy", "\\boxed{cat}", "\\boxed{dog}"),
    _gem("game:Hangman-v0-easy", "\\boxed{e}", "\\boxed{a}"),
    _gem("game:WordSearch-v0-easy", "\\boxed{1 2 1 6}", "\\boxed{3 3 8 3}"),
    _gem("rg:leg_counting", "<answer>12</answer>", "<answer>8</answer>"),
    _skyrl("gsm8k"),
    _skyrl("gsm8k_multi_turn"),
)
NOT_HERE: Mapping[str, str] = {
    "TextArena: Wordle": "it needs a tagger of nltk's, which is on no package index",
    "TextArena: WordLadder, also in verifiers": "it takes minutes to begin with many words",
    "TextArena: TwentyQuestions, GuessWho, Debate, ScenarioPlanning": "a hosted model plays with, "
    "for which they need a key",
    "TextArena: games of several players": "nobody plays the others",
    "TextArena: Chess, Checkers, Klondike, ReverseTicTacToe": "their code is of Python 3.12",
    "GEM: math, code, logic, qa, eval": "datasets of the hub",
    "verifiers: prime_factorization of reasoning_gym": "its score raises for what is no number",
    "SkyRL-gym: search, searchcode, text2sql, lcb": "a search server, databases, datasets",
    "OpenEnv: browsergym, carla, coding agents, ...": "their servers need a browser, a simulator, "
    "containers; all of its servers are on GitHub and on Spaces of the hub, not on PyPI",
    "TRL: BrowserGym, CARLA, OpenCode, Harbor, OpenReward": "clients of these and of "
    "hosted services",
}
"""What could not be installed or run without a network, and why."""
