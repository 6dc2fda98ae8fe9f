"""Tools, environments and reward functions as users of TRL write them."""

import asyncio
import hashlib
import json
import os
import random
import time
from pathlib import Path


def lookup(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return {"pears": "a fruit", "seven": "7"}.get(word, f"nothing on {word!r}")


async def weigh(amount: int) -> float:
    """Weigh an amount.

    Args:
        amount: How much.
    """
    await asyncio.sleep(0.001 * (amount % 3))
    if amount == 13:
        raise RuntimeError("the scale is broken")
    return amount * 1.5


def noted(amount: int, call_id: str) -> str:
    """Note an amount, where everybody can see it.

    Args:
        amount: How much.
        call_id: Of the call.
    """
    note_effect(call_id)
    time.sleep(0.03)
    return f"noted {amount} {random.random()}"


def note_effect(call: str) -> None:
    """Note that a call has begun; hold it, and those after it, once `HELD_AFTER` have.

    A process whose calls are held does not end before the test that waits for them has killed it.
    """
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"{call}\n")
    held_after = os.environ.get("HELD_AFTER")
    if held_after and len(Path(os.environ["EFFECTS"]).read_text().split()) >= int(held_after):
        time.sleep(600)


class Shop:
    """Has a total, and a target that `reset` tells."""

    def reset(self, target: int, **row) -> str:
        self.total, self.target, self.row = 0, target, row
        return f" Reach {target}."

    def add(self, amount: int, what: str = "apples") -> str:
        """Add an amount.

        Args:
            amount: How much to add.
            what: Of what.
        """
        self.total += amount
        return f"total {self.total} {what}"

    def fail(self, amount: int = 1) -> str:
        """Fail.

        Args:
            amount: Anything.
        """
        raise ValueError(f"no more than {amount} of these")

    def history(self) -> list:
        """Return the total so far as blocks of content."""
        return [{"type": "text", "text": f"so far {self.total}"}]

    def count(self) -> int:
        """Return the total."""
        return self.total

    def get_reward(self) -> float:
        return 1.0 / (1 + abs(self.total - self.target))


class AsyncShop(Shop):
    """Is asked and scored by coroutines."""

    def reset(self, target: int, **row) -> None:
        super().reset(target, **row)

    async def take(self, amount: int) -> str:
        """Take an amount away.

        Args:
            amount: How much to take.
        """
        await asyncio.sleep(0.001 * (amount % 4))
        self.total -= amount
        return f"left {self.total}"

    async def get_reward(self) -> float:
        await asyncio.sleep(0)
        return float(self.total > 0)


class Rewriting(Shop):
    """Changes the prompt that it is given."""

    def reset(self, target: int, prompt: list, **row) -> None:
        super().reset(target, **row)
        prompt[-1]["content"] += f" Reach {target}, and stop."
        prompt.insert(0, {"role": "system", "content": "You reach what you are told to."})


class Blocks:
    """Observes in blocks of content, and has no reward of its own."""

    def reset(self, target: int, **row) -> list:
        self.total = target
        return [{"type": "text", "text": f" Start with {target}."}]

    def add(self, amount: int) -> int:
        """Add an amount.

        Args:
            amount: How much to add.
        """
        self.total += amount
        return self.total


def near(environments, trainer_state, **kwargs):
    """How near each environment's total is to 10, which counts more from step to step."""
    weight = 1 + trainer_state.global_step / trainer_state.max_steps
    return [-weight * abs(each.total - 10) / 10 for each in environments]


def told(environments, **kwargs):
    """A number that any difference in what `reset` is given changes."""
    texts = [json.dumps(getattr(each, "row", None), sort_keys=True) for each in environments]
    return [hashlib.sha256(text.encode()).digest()[1] / 256 for text in texts]


async def slowly_near(environments, **kwargs):
    await asyncio.sleep(0)
    return near(environments, **kwargs)


def seen(prompts, completions, completion_ids, **kwargs):
    """A number that any difference in what a reward function is given changes."""
    hidden = ("trainer_state", "log_extra", "log_metric", "environments")
    columns = {name: values for name, values in kwargs.items() if name not in hidden}
    rows = []
    for index, (prompt, completion, ids) in enumerate(
        zip(prompts, completions, completion_ids, strict=True)
    ):
        row = [prompt, completion, list(ids), {n: columns[n][index] for n in sorted(columns)}]
        digest = hashlib.sha256(json.dumps(row, sort_keys=True, default=list).encode()).digest()
        rows.append(digest[0] / 256)
    return rows


def some(completion_ids, **kwargs):
    """Abstains from every completion with an odd first token."""
    return [None if ids[0] % 2 else len(ids) / 100 for ids in completion_ids]


class Noted(Shop):
    """A shop of which others see what is added."""

    def add(self, amount: int, call_id: str) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
            call_id: Of the call.
        """
        self.total += amount
        return f"total {self.total}, {noted(amount, call_id)}"


class Clock(Noted):
    """A shop that answers otherwise each time."""

    def add(self, amount: int, call_id: str) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
            call_id: Of the call.
        """
        return f"{super().add(amount, call_id)} at {time.time_ns()}"


class Morning(Noted):
    """A shop that is another one each time it is opened."""

    def reset(self, target: int, **row) -> str:
        return f"{super().reset(target, **row)} It is {time.time_ns()}."


class Remote(Shop):
    """A shop whose server cannot be reached for one call in five: once, or always."""

    def add(self, amount: int, call_id: str) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
            call_id: Of the call.
        """
        outage = os.environ.get("OUTAGE")
        *episode, _, number = call_id.split("/")
        drawn = "/".join([*episode, number])  # whatever the run's seeds are
        if outage and hashlib.sha256(drawn.encode()).digest()[0] < 256 // 5:
            asked = Path(os.environ["ASKED"])
            if outage == "always" or call_id not in asked.read_text().split():
                with asked.open("a") as file:
                    file.write(f"{call_id}\n")
                raise ConnectionError("the server is away")
        return super().add(amount)


class Saved(Noted):
    """A shop that can be brought back to where it was."""

    def _save(self) -> dict:
        return {"total": self.total}

    def _load(self, state: dict) -> None:
        self.total = state["total"]


class Talked(Noted):
    """A shop that answers what is said, once."""

    said = 0

    def _reply(self, text: str, call_id: str) -> str | None:
        noted(self.said, call_id)
        self.said += 1
        return None if self.said > 1 else f"You said {text!r}. Go on from {self.total}."
