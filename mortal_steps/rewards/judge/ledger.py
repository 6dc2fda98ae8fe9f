"""Answers of judges and what they cost, in the run directory, so that a resumed run pays once.

    judge/20261122T132501-4711-3fa2c19b.jsonl
        {"question": "9f2c...", "score": 7.0, "reason": "...", "model": "gpt-4o-mini",
         "prompt_tokens": 412, "completion_tokens": 31, "dollars": 8e-05, "check": "1a2b..."}

A line is one paid answer: written when it has come, before anything is made of it. An answer
without a usable score has the score null.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mortal_steps.errors import ConfigError
from mortal_steps.rewards.judge.question import Grade
from mortal_steps.store.files import write_atomically
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.store.json_record import adapter
from mortal_steps.store.line_files import LineFiles
from mortal_steps.types import JudgeCosts

FOLDER = "judge"
ELSEWHERE = "elsewhere.json"
"""File with the costs, by file name, of files that are only on a Volume."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payment:
    """One answer of a judge."""

    question: str
    """Digest of what was asked."""
    score: float | None
    """The score; None if the answer holds none."""
    reason: str
    """The judge's reason, or why its answer cannot be used."""
    model: str
    prompt_tokens: int
    completion_tokens: int
    dollars: float
    """Its price; 0 if no prices are known."""

    @property
    def costs(self) -> JudgeCosts:
        return JudgeCosts(
            answers=1,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            dollars=self.dollars,
        )


class Spending:
    """The costs of a run's judges so far. Each call reads only what is new."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._files = LineFiles(self._folder, Payment)
        self._here: dict[str, JudgeCosts] = {}

    def so_far(self) -> JudgeCosts:
        """Return the costs over all attempts of the run, on this machine and on the Volume."""
        return sum({**self._elsewhere(), **self.by_file()}.values(), start=JudgeCosts())

    def by_file(self) -> dict[str, JudgeCosts]:
        """Return the costs in each file that is on this machine."""
        for name, payment in self._files.new():
            self._here[name] = self._here.get(name, JudgeCosts()) + payment.costs
        return dict(self._here)

    def learn(self, costs: Mapping[str, JudgeCosts]) -> None:
        """Count what a worker elsewhere paid; files that are here count themselves."""
        news = {name: each for name, each in costs.items() if name not in self.by_file()}
        known = self._elsewhere()
        if any(known.get(name) != each for name, each in news.items()):
            self._folder.mkdir(exist_ok=True)
            rows = {name: asdict(costs) for name, costs in {**known, **news}.items()}
            write_atomically(self._folder / ELSEWHERE, json.dumps(rows).encode())

    def _elsewhere(self) -> dict[str, JudgeCosts]:
        """Return what `learn` got; nothing if damaged: the next answer has it again."""
        try:
            content = (self._folder / ELSEWHERE).read_bytes()
            return adapter(dict[str, JudgeCosts]).validate_json(content)
        except (FileNotFoundError, ValueError):
            return {}


class Ledger:
    """The answers that a process knows and pays for; it can be used by several threads. Without a
    run directory it keeps them in memory."""

    def __init__(self, run_dir: Path | None) -> None:
        self._files = None if run_dir is None else LineFiles(run_dir / FOLDER, Payment)
        self._grades: dict[str, Grade] = {}
        self._writing = threading.Lock()

    def refresh(self) -> None:
        """Read the answers that others have paid for meanwhile."""
        if self._files is not None:
            for _, payment in self._files.new():
                self._learn(payment)

    def begin(self) -> None:
        """Begin the file that this process, and forks of it, write into."""
        if self._files is not None:
            self._files.begin()

    def find(self, question: str) -> Grade | None:
        return self._grades.get(question)

    def pay(self, payment: Payment) -> None:
        """Store an answer; raises `StoreError` if it cannot be written."""
        with self._writing:
            if self._files is not None:
                self._files.add(payment)
            self._learn(payment)

    def _learn(self, payment: Payment) -> None:
        if payment.score is not None:
            grade = Grade(score=payment.score, reason=payment.reason)
            self._grades.setdefault(payment.question, grade)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRun:
    """The run that the judges of a process score."""

    run_dir: str | None = None
    """Run directory, which keeps answers and costs once the run exists."""
    call_timeout_s: float = 60.0
    """Time limit of one call of a reward function."""
    refusal: str | None = None
    """Why no judge can be asked in this process, if none can."""


_run = JudgedRun()
_ledger: Ledger | None = None
_making = threading.Lock()


def use_run(run: JudgedRun) -> None:
    global _run, _ledger
    with _making:
        _run, _ledger = run, None


def current_run() -> JudgedRun:
    """Return what judges are made for; raise `ConfigError` where there are none."""
    if _run.refusal is not None:
        raise ConfigError(_run.refusal)
    return _run


def shared_ledger() -> Ledger:
    """Return the ledger of all judges of this process; one in memory for a dry run, which scores
    before there is a run directory and must not begin one."""
    global _ledger
    with _making:
        if _ledger is None:
            run_dir = None if _run.run_dir is None else Path(_run.run_dir)
            begun = run_dir is not None and (run_dir / IDENTITY_FILE).exists()
            _ledger = Ledger(run_dir if begun else None)
        return _ledger


def share_ledger() -> None:
    """Before this process is forked: if it has judges, read what was paid for until now, and begin
    the file that they write into; else each fork would do so."""
    if _ledger is not None:
        _ledger.refresh()
        _ledger.begin()
