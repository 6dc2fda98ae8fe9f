"""A recipe that is killed again and again: in each of its stages, and between two of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.recipes.record import StageRecord
from mortal_steps.registry.registry import Registry
from tests.support.chaos.processes import GONE_WITHIN_S, below, kill, process_ids
from tests.support.chaos.server import KillableServer
from tests.support.whole_recipe import digests, left_running, record_of, write_recipe

START, BETWEEN, END = "the start", "between", "the end"
"""No stage runs: none has begun yet, the next one has not, or there is no next one."""
STAGES = ("sft", "rm", "grpo", "gate")
PLACES = (*STAGES, BETWEEN)
WAY = ("sft", BETWEEN, "rm", BETWEEN, "grpo", BETWEEN, "gate")
"""The places in the order in which a recipe comes to them."""
STAGE_PROCESS = b"mortal_flows.stage_process"
JUDGES = ("rollout-0", "reward-0")
"""What a gate, which is passed in the recipe's own process, has beside it."""
EACH = 2
"""Kills of one recipe in each of its stages."""
PATIENCE_S = 600.0
AWAY_S = 3.0
"""Seconds for which a killed server stays away."""
POLL_S = 0.005


class Broken(Exception):
    """The recipe did not do what it has to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """What is killed, and where."""

    victim: str
    """`recipe`, `stage`, `both` or `server`."""
    place: str
    """A stage, `between` two of them, `the start` or `the end`."""


def victims(place: str) -> tuple[str, ...]:
    """Return what can be killed there: between two stages, none has a process."""
    if place == BETWEEN:
        return ("recipe", "server")
    return ("recipe", "stage", "both", "server")


def aims(drawn: random.Random, killed: Counter[Kill], wanted: int) -> Iterator[tuple[Kill, float]]:
    """Yield kills that are still missing, on the way of one recipe, each with a part of the time
    that its place lasts undisturbed. `killed` is counted on meanwhile."""
    for place in WAY:
        for number in range(1 if place == BETWEEN else EACH):
            if at(killed, place) < wanted:
                possible = victims(place)
                part = wanted / len(possible)
                short = [one for one in possible if killed[Kill(victim=one, place=place)] < part]
                aim = Kill(victim=drawn.choice(short or possible), place=place)
                yield aim, drawn.random() / (number + 1)  # what goes on has less to do


def at(killed: Counter[Kill], place: str) -> int:
    """Return how many kills hit there."""
    return sum(times for one, times in killed.items() if one.place == place)


class RecipeUnderFire:
    """A recipe in a folder of its own, which goes on after each kill."""

    def __init__(self, folder: Path, server: KillableServer, drawn: random.Random) -> None:
        folder.mkdir(parents=True)
        write_recipe(folder)
        self._folder, self._server, self._drawn = folder, server, drawn
        self._command = ("train", "words.toml")
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = True
        """Whether the process may end otherwise than well: it was killed, or its stage."""
        self._started = 0.0

    def go_on(self) -> bool:
        """Have the recipe driven; False once it is complete. Raises `Broken` if it has failed
        though nobody had killed anything that ends it."""
        code = self._process.poll() if self._process else -1
        if code == 0:
            return False
        if code is not None:
            if not self._killed:
                raise Broken(f"ended with {code}: {self._said()[-2000:]}")
            self._start()
        return True

    def _start(self) -> None:
        self._started = time.time()
        with (self._folder / "said.log").open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mortal", *self._command],
                cwd=self._folder,
                env={**os.environ, "PREFECT_API_URL": self._server.api_url},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._command, self._killed = ("resume", "words"), False

    def strike(self, aim: Kill, after_s: float) -> Kill | None:
        """Kill once the recipe has been in a place for so long, or has just left it; return what
        that hit. None: the recipe comes there no more, or there was nothing to kill."""
        if not self.go_on() or not self._comes_to(aim.place):
            return None
        self._wait(lambda: self._place() != aim.place, after_s)
        victim = self._kill(aim)
        if victim is None:
            return None
        hit = Kill(victim=victim, place=self._place())
        self._see_what_ends(hit)
        return hit

    def _comes_to(self, place: str) -> bool:
        """Wait until the recipe is in this place; False if it ends, or was there before."""
        if place == BETWEEN:
            made = self._made()
            self._wait(lambda: self._made() > made)
            return self._running.poll() is None and self._place() != END
        self._wait(lambda: self._place() == place or place in self._made(before=True))
        return self._running.poll() is None and self._place() == place

    def _kill(self, aim: Kill) -> str | None:
        """Kill; return what was there to be killed."""
        if aim.victim == "server":
            self._server.kill()
            return aim.victim
        stage = aim.victim != "recipe" and any(map(kill, self._of_stage()))
        if aim.victim == "stage":
            return aim.victim if stage else None
        recipe = kill(self._running.pid)
        return (aim.victim if stage else "recipe") if recipe else None

    def _of_stage(self) -> list[int]:
        """Return the process of the stage that runs; of a gate, one of those that judge."""
        if self._place() != "gate":
            return below(self._running.pid, STAGE_PROCESS)
        judges = [pid for name in JUDGES for pid in process_ids(self._running.pid, name)]
        return [self._drawn.choice(judges)] if judges else []

    def _see_what_ends(self, hit: Kill) -> None:
        """Wait until what the kill ends has ended."""
        if hit.victim == "server":
            time.sleep(AWAY_S)
            self._server.come_back()
            self._server.wait()
        elif hit.victim in ("recipe", "both"):
            self._killed = True
            self._running.wait(PATIENCE_S)
        elif hit.place != "gate":  # which asks others to judge
            self._killed = True
            self._wait(lambda: hit.place in self._made())  # or until the recipe ends with it

    def finish(self) -> None:
        """Have the recipe come to its end."""
        for _ in range(3):
            if not self.go_on():
                return
            self._running.wait(PATIENCE_S)
        if self.go_on():
            raise Broken(f"does not come to its end: {self._said()[-2000:]}")

    def end(self) -> None:
        """Kill it, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def made(self) -> dict[str, str | None]:
        """Return the digest of what each stage has made. Raises `Broken` for work that was lost,
        done twice or left behind."""
        try:
            found = digests(self._folder)
        except AssertionError as error:
            raise Broken(str(error)) from error
        record = record_of(self._folder)
        assert record is not None
        jobs = {each.job_id for each in record.stages.values() if each.kind == "train"}
        runs = {path.name for path in (self._folder / "runs").glob("words-*")}
        decided = Registry(self._folder / "models", "words").history()
        if runs != jobs or len(decided) != 1:
            raise Broken(f"runs {sorted(runs)}, decisions {decided}")
        if left := left_running(self._server.api_url):
            raise Broken(f"the server believes that {left} run")
        if processes := _processes_in(self._folder):
            raise Broken(f"left behind: {processes}")
        return found

    def lasted(self) -> Mapping[str, float]:
        """Return the seconds that each stage took, and the mean of those between two."""
        record = record_of(self._folder)
        assert record is not None
        spans = [
            (each.began_at or 0.0, each.ended_at or 0.0)
            for each in (record.stages[name] for name in STAGES)
        ]
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
        lasted = {name: end - begin for name, (begin, end) in zip(STAGES, spans, strict=True)}
        return {**lasted, BETWEEN: sum(gaps) / len(gaps)}

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _place(self) -> str:
        """Return the stage that runs, as the record tells, or that none does."""
        stages = self._stages()
        running = [name for name, each in stages.items() if each.standing == "running"]
        if running:
            return running[0]
        if "gate" in self._made():
            return END
        return BETWEEN if self._made() else START

    def _made(self, *, before: bool = False) -> set[str]:
        """Return the stages that this attempt has made, or with `before`, earlier ones, too."""
        made = {name: each for name, each in self._stages().items() if each.standing == "complete"}
        return {name for name, each in made.items() if before or each.began_at is not None}

    def _stages(self) -> Mapping[str, StageRecord]:
        """Return how the stages stand; nothing until this attempt has written that."""
        record = record_of(self._folder)
        return record.stages if record and record.began_at > self._started else {}

    def _wait(self, until: Callable[[], bool], at_most_s: float = PATIENCE_S) -> None:
        """Wait until something holds, the recipe's process ends, or the time is over."""
        deadline = time.monotonic() + at_most_s
        while self._running.poll() is None and not until():
            if time.monotonic() > deadline:
                if at_most_s == PATIENCE_S:
                    raise Broken(f"hangs: {self._said()[-2000:]}")
                return
            time.sleep(POLL_S)

    def _said(self) -> str:
        return (self._folder / "said.log").read_text(errors="replace")


def _processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that work in a folder, once they had their time to
    end."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while True:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").resolve() == folder.resolve():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)
