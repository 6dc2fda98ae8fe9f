"""Classes for GRPOTrainer's `environment_factory` as TRL's documentation and examples have them:
clients of servers of OpenEnv, with a method for each tool, and a counter without a server.

`reset` hands on the seed that MORTAL gives, and TRL does not; `Unseeded` leaves it out as they do.
"""

from __future__ import annotations

import os
from typing import Any

MOVES = {"left": 0, "stay": 1, "right": 2}


class Client:
    """What the classes have in common."""

    url = "ENV_URL"
    """Variable with the address of its server."""

    def __init__(self) -> None:
        from openenv.core.generic_client import GenericEnvClient

        self._client = GenericEnvClient(base_url=os.environ[self.url]).sync()
        self.reward, self.done = 0.0, False

    def reset(self, seed: int | None = None, **row: Any) -> str:
        return self._begun(self._client.reset(seed=seed))

    def _begun(self, result: Any) -> str:
        self.reward, self.done = 0.0, False
        return str(result.observation.get("text", ""))

    def _taken(self, **action: Any) -> dict[str, Any]:
        if self.done:
            raise ValueError("Game over.")
        result = self._client.step(action)
        self.reward, self.done = result.reward or 0.0, result.done
        seen: dict[str, Any] = result.observation
        return seen


class Echo(Client):
    def echo(self, message: str) -> str:
        """
        Have a message echoed.

        Args:
            message: The message.
        """
        return str(self._taken(message=message)["echoed_message"])


class Wordle(Client):
    def guess(self, guess: str) -> str:
        """
        Guess the word.

        Args:
            guess: The word.
        """
        return str(self._taken(message=f"\\boxed{{{guess}}}")["text"])


class Unseeded(Wordle):
    def reset(self, seed: int | None = None, **row: Any) -> str:
        return self._begun(self._client.reset())


class Sudoku(Client):
    def place(self, row: int, col: int, number: int) -> str:
        """
        Place a number on the board.

        Args:
            row: From 1 to 9.
            col: From 1 to 9.
            number: From 1 to 9.
        """
        return str(self._taken(message=f"[{row} {col} {number}]")["text"])


class Catch(Client):
    url = "CATCH_URL"

    def move(self, direction: str) -> str:
        """
        Move the paddle.

        Args:
            direction: `left` or `right`.
        """
        if direction not in ("left", "right"):
            raise ValueError(f"{direction!r} is no direction.")
        return str(self._taken(action_id=MOVES[direction])["text"])

    def stay(self) -> str:
        """
        Let the ball fall.
        """
        return str(self._taken(action_id=MOVES["stay"])["text"])


class Several:
    """One of two, as the row says."""

    def __init__(self) -> None:
        self._each: dict[str, Client] = {"wordle": Wordle(), "catch": Catch()}

    def reset(self, env: str, seed: int | None = None, **row: Any) -> str:
        self._name = env
        return self._each[env].reset(seed=seed)

    @property
    def reward(self) -> float:
        return self._each[self._name].reward

    def guess(self, guess: str) -> str:
        """
        Guess the word.

        Args:
            guess: The word.
        """
        if not isinstance(playing := self._each[self._name], Wordle):
            raise ValueError("There is no word to guess.")
        return playing.guess(guess)

    def move(self, direction: str) -> str:
        """
        Move the paddle.

        Args:
            direction: `left` or `right`.
        """
        if not isinstance(playing := self._each[self._name], Catch):
            raise ValueError("There is no paddle.")
        return playing.move(direction)


class Counter:
    """Counts in its own process."""

    def reset(self, **row: Any) -> None:
        self.reward = 0.0

    def increment(self, step: int) -> str:
        """
        Add to the counter.

        Args:
            step: How much.
        """
        self.reward += step
        return f"The counter is at {self.reward:g}."


def earned(environments: Any, **columns: Any) -> list[float]:
    return [each.reward for each in environments]
