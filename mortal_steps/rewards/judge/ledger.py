"""Answers of judges and what they cost, in the run directory, so that a resumed run pays once.

    judge/20261122T132501-4711-3fa2c19b.jsonl
        {"question": "9f2c...", "score": 7.0, "reason": "...", "model": "gpt-4o-mini",
         "prompt_tokens": 412, "completion_tokens": 31, "dollars": 8e-05, "check": "1a2b..."}

A line is one paid answer: written when it has come, before anything is made of it. An answer
without a usable score has the score null. Each judge of a process has a file of its own. `check` is
the beginning of the sha256 of the rest: a line that a kill has cut short, or that was altered,
does not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mortal_steps.rewards.judge.question import Grade
from mortal_steps.store.files import write_atomically, writing
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.store.json_record import adapter
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
        """Costs of this answer."""
        return JudgeCosts(
            answers=1,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            dollars=self.dollars,
        )


class PaymentFiles:
    """Reads the files of a folder as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        """Bytes of each file that are read."""

    def new(self) -> Iterator[tuple[str, Payment]]:
        """Return whole lines since the last call, each with its file's name, the oldest file's
        first."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                payment = _payment(line)
                if payment is not None:
                    yield path.name, payment


class Spending:
    """The costs of a run's judges so far. Each call reads only what is new."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._files = PaymentFiles(self._folder)
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
        """Count files that a worker elsewhere writes. For files that are here, their own lines
        count."""
        news = {name: each for name, each in costs.items() if name not in self.by_file()}
        known = self._elsewhere()
        if any(known.get(name) != each for name, each in news.items()):
            self._folder.mkdir(exist_ok=True)
            rows = {name: asdict(costs) for name, costs in {**known, **news}.items()}
            write_atomically(self._folder / ELSEWHERE, json.dumps(rows).encode())

    def _elsewhere(self) -> dict[str, JudgeCosts]:
        """Return what `learn` was given; nothing if the file is damaged: the worker's next answer
        has all of it again."""
        try:
            content = (self._folder / ELSEWHERE).read_bytes()
            return adapter(dict[str, JudgeCosts]).validate_json(content)
        except (FileNotFoundError, ValueError):
            return {}


class Ledger:
    """The answers that a process knows and pays for; it can be used by several threads. Without a
    run directory it keeps them in memory."""

    def __init__(self, run_dir: Path | None) -> None:
        self._folder = None if run_dir is None else run_dir / FOLDER
        self._files = None if self._folder is None else PaymentFiles(self._folder)
        self._grades: dict[str, Grade] = {}
        self._descriptor: int | None = None
        self._writing = threading.Lock()

    def refresh(self) -> None:
        """Read the answers that others have paid for meanwhile."""
        if self._files is not None:
            for _, payment in self._files.new():
                self._learn(payment)

    def find(self, question: str) -> Grade | None:
        """Return the known grade of a question."""
        return self._grades.get(question)

    def pay(self, payment: Payment) -> None:
        """Store an answer; raises `StoreError` if it cannot be written."""
        with self._writing:
            if self._folder is not None:
                self._write(self._folder, payment)
            self._learn(payment)

    def _learn(self, payment: Payment) -> None:
        if payment.score is not None:
            grade = Grade(score=payment.score, reason=payment.reason)
            self._grades.setdefault(payment.question, grade)

    def _write(self, folder: Path, payment: Payment) -> None:
        with writing(folder):
            if self._descriptor is None:
                folder.mkdir(exist_ok=True)
                when = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
                path = folder / f"{when}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            line = _line(payment)
            if os.write(self._descriptor, line) < len(line):
                os.close(self._descriptor)
                self._descriptor = None  # behind the part, the next line would be unreadable
                raise OSError(f"only a part of {len(line)} bytes was written")


def _line(payment: Payment) -> bytes:
    fields = asdict(payment)
    return json.dumps({**fields, "check": _check(payment)}).encode() + b"\n"


def _payment(line: bytes) -> Payment | None:
    try:
        fields = json.loads(line)
        check = fields.pop("check")
        payment = adapter(Payment).validate_python(fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return payment if check == _check(payment) else None


def _check(payment: Payment) -> str:
    content = json.dumps(asdict(payment), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRun:
    """The run that the judges of a process score."""

    run_dir: str | None = None
    """Run directory, which keeps answers and costs once the run exists."""
    call_timeout_s: float = 60.0
    """Time limit of one call of a reward function."""


_run = JudgedRun()
_ledger: Ledger | None = None
_making = threading.Lock()


def use_run(run: JudgedRun) -> None:
    """Set the run of this process."""
    global _run, _ledger
    with _making:
        _run, _ledger = run, None


def current_run() -> JudgedRun:
    """Return the run of this process."""
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
