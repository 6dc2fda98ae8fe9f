"""`mortal grade` on a thousand problems, killed five times: the file of a grading that nothing
happened to."""

import json
import os
import random
import re
import signal
import string
import time
from collections import Counter

from mortal_steps.orchestration.trials.grading import FOLDER
from tests.support.command import Mortal
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project

PROBLEMS, COMPLETIONS, SHARDS = 1000, 4, 40
HELD_OUT = 8
"""Which are not graded."""
KILLED_AT = (2, 10, 18, 26, 34)
"""Shards that are scored by then."""


def write_problems(folder):
    dice = random.Random(0)
    words = [
        "".join(dice.choices(string.ascii_lowercase[:6], k=3)) for _ in range(PROBLEMS + HELD_OUT)
    ]
    rows = [{"prompt": f"{word}{n}=", "answer": word[::-1]} for n, word in enumerate(words)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def grade(folder, runs_dir):
    """Begin to grade in a folder, as a user would."""
    settings = {"runs_dir": runs_dir, "training.batch_size": 4 * PROBLEMS // SHARDS}
    settings |= {"rollout.num_rollout_workers": 2}
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    asked = ("--completions", str(COMPLETIONS), "--output", f"{runs_dir}.jsonl")
    return Mortal(folder, "").start("grade", "tiny.toml", *asked, *given)


def shards_of(folder, runs_dir, kind):
    return list((folder / runs_dir).glob(f"{FOLDER}/*/shards/{kind}-*"))


def wait_for_shards(process, folder, runs_dir, count):
    deadline = time.monotonic() + PATIENCE_S
    while len(shards_of(folder, runs_dir, "rewards")) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_a_grading_killed_five_times_writes_the_same_file(tmp_path):
    write_project(tmp_path)
    write_problems(tmp_path)
    assert grade(tmp_path, "whole").wait(PATIENCE_S) == 0
    committed = 0
    for count in KILLED_AT:
        process = grade(tmp_path, "killed")
        wait_for_shards(process, tmp_path, "killed", count)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        committed = len(shards_of(tmp_path, "killed", "rewards"))
        assert count <= committed < SHARDS
    assert grade(tmp_path, "killed").wait(PATIENCE_S) == 0
    written = (tmp_path / "killed.jsonl").read_bytes()
    assert written == (tmp_path / "whole.jsonl").read_bytes()
    rows = [json.loads(line) for line in written.splitlines()]
    assert len(rows) == PROBLEMS and all("pass_rate" in row for row in rows)
    [graded] = (tmp_path / "killed").glob(f"{FOLDER}/*")
    logs = "".join(path.read_text() for path in graded.glob("logs/rollout-*.log"))
    sampled = Counter(re.findall(r"sampling (\S+) with", logs))
    assert len(sampled) == SHARDS
    again = sum(sampled.values()) - SHARDS
    assert again <= 2 * len(KILLED_AT), "what two workers were at when they were killed, no more"
