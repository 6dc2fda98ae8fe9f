"""Environments whose answers depend on what they must not, each on something else."""

import itertools
import os
import random
import time
import uuid
from typing import ClassVar

AT_IMPORT = os.urandom(4).hex()


class Steady:
    def reset(self, target, **row):
        self.target, self.total = target, 0
        return f" Reach {target} from {random.random()}."

    def add(self, amount: int, what: str = "apples") -> str:
        """Add an amount.

        Args:
            amount: How much to add.
            what: Of what.
        """
        self.total += amount
        return f"{self.total} {what} {random.random()}"

    def answer(self) -> str:
        """Return an answer."""
        return "42"

    def get_reward(self):
        return float(self.total)


class Unique(Steady):
    def answer(self) -> str:
        """Return an answer."""
        return uuid.uuid4().hex


class Counting(Steady):
    made: ClassVar = itertools.count()

    def reset(self, target, **row):
        super().reset(target)
        self.number = next(self.made)

    def answer(self) -> str:
        """Return an answer."""
        return f"game {self.number}"


class Imported(Steady):
    def answer(self) -> str:
        """Return an answer."""
        return AT_IMPORT


class Observing(Steady):
    def reset(self, target, **row):
        super().reset(target)
        return uuid.uuid4().hex


class Judging(Steady):
    def get_reward(self):
        return random.SystemRandom().random()


class Failing(Steady):
    def reset(self, target, **row):
        raise OSError("no board")


class Hanging(Steady):
    def answer(self) -> str:
        """Return an answer."""
        time.sleep(600)


def near(environments, completions, **kwargs):
    """How near the last answer says that the total is."""
    assert all(each[-2]["role"] == "tool" for each in completions)
    return [each.total / 10 for each in environments]
