"""Environments, tools and rewards as users write them, with all that a handler meets."""

import asyncio
import random
from typing import ClassVar

import numpy as np

from mortal_steps.errors import JudgeError


class DownError(Exception):
    """What a tool asks is down."""


class Shop:
    loops: ClassVar[list] = []

    def reset(self, target: int, **row) -> str:
        self.total, self.target, self.row = 0, target, row
        return row.get("observed", f" Reach {target}.")

    def add(self, amount: int) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
        """
        self.total += amount
        return f"total {self.total}"

    async def slow(self, amount: int) -> float:
        """Add an amount, later.

        Args:
            amount: How much to add.
        """
        self.loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0.01 * amount)
        if amount == 0:
            raise SystemExit("async")
        self.total += amount
        return self.total / 2

    def raising(self, kind: str) -> str:
        """Raise an exception.

        Args:
            kind: Its name.
        """
        kinds = {
            "down": DownError,
            "exit": SystemExit,
            "judge": JudgeError,
            "refused": ConnectionRefusedError,
            "value": ValueError,
        }
        raise kinds[kind](f"it is {kind}")

    def told(self, what: int) -> object:
        """Return something that is no text.

        Args:
            what: Which.
        """
        text, image = {"type": "text", "text": "a"}, {"type": "image"}
        return [[text], None, {"a": 1}, [image], [{1, 2}], [1, 2], [0.5, float("nan")]][what]

    def ask(self, call_id: str, text: str) -> str:
        """Ask something.

        Args:
            call_id: Of the call.
            text: What.
        """
        return f"{call_id}: {text}"

    def _hidden(self):
        """Not a tool."""

    @property
    def broken(self):
        raise AssertionError("properties are not evaluated")

    def get_reward(self) -> float:
        return float(self.total)


class AsyncShop(Shop):
    async def get_reward(self) -> float:
        self.loops.append(asyncio.get_running_loop())
        return -float(self.total)


class Dice:
    """Draws from both global streams in `reset` and after."""

    def reset(self, seed: int, **row) -> str:
        self.seed = seed
        return f"{random.random()} {np.random.random()}"

    def roll(self) -> str:
        """Roll."""
        return f"{random.random()} {np.random.random()}"


class Observing:
    """Returns from `reset` what its row says."""

    def reset(self, observed, prompt, adds=(), **row):
        if observed == "raise":
            raise SystemExit("no")
        prompt.extend(adds)
        return observed


class Closing(Observing):
    def close(self) -> str:
        """Close it."""
        return "closed"


class WithoutReset:
    def add(self, amount: int) -> int:
        """Add.

        Args:
            amount: How much.
        """
        return amount


class Untyped(Observing):
    def add(self, amount):
        """Add.

        Args:
            amount: How much.
        """


class Undescribed(Observing):
    def add(self, amount: int):
        """Add."""


class Failing:
    def __init__(self):
        raise OSError("no board")


def add(amount: int) -> str:
    """Have the name of a method of `Shop`.

    Args:
        amount: How much.
    """
    return "standalone"


def search(query: str = "a") -> str:
    """Search.

    Args:
        query: For what.
    """
    return query[::-1]


def near(environments, **kwargs):
    return [-abs(each.total - each.target) for each in environments]


def looked_up(**kwargs):
    kwargs["log_metric"]("totals", sum(each.total for each in kwargs["environments"]))
    return [each.total for each in kwargs["environments"]]


def without(completions, **kwargs):
    return [0.0 for _ in completions]


def wrong(environments, **kwargs):
    return [1.0]


class Talking(Shop):
    """Answers what is said."""

    def _reply(self, text):
        if text == "down":
            raise ConnectionError("nobody there")
        return {"number": 5, "end": None}.get(text, f"{text}? {random.random()}")


class TalkingLater(Shop):
    async def _reply(self, text):
        await asyncio.sleep(0)
        return text * 2


class Drawing:
    """Draws its reward."""

    def reset(self, **row) -> None:
        pass

    def get_reward(self) -> float:
        return random.random() + np.random.random()


class DrawingLater(Drawing):
    async def get_reward(self) -> float:
        await asyncio.sleep(0)
        return random.random()


def uses_up(environments, numbers, **columns):
    """Use up a number of each row."""
    return [float(each.pop()) for each in numbers]


async def after_all(environments, numbers, **columns):
    return [float(len(each)) for each in numbers]
