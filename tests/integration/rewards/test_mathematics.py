"""Mathematics that cannot be compared in time ends nobody but itself."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mortal.rewards.functions import math_equal
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError, WorkerLostError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.kinds.math import Math
from mortal_steps.rewards.mathematics.verdicts import (
    LONGEST_SHEET,
    Comparison,
    compare_all,
    lanes,
    sheets_of,
)
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.scorer import Scorer
from tests.support.rewards.processes import assert_ends
from tests.support.rewards.shards import make_shard

CPU_S = 0.3
ENDLESS = [
    r"$9^{9^{9^{9}}}$",
    "9**9**9**9",
    r"\boxed{((99!)!)!}",
    r"<answer>\sin(10^{10^{10}})</answer>",
    r"$\prod_{i=1}^{1000000} (x+i)$",
    "$" + "(" * 2000 + "1" + ")" * 2000 + "$",
]
"""Each takes math-verify minutes, or for ever."""


def verdicts(gold: str, said: list[str | None], *, cpu_s: float = 10.0) -> list[str]:
    asked = [Comparison(gold=gold, answer=one) for one in said]
    found = compare_all(asked, cpu_s=cpu_s)
    return [found[one].name for one in asked]


def pids() -> set[int]:
    return {lane.pid for lane in lanes().lanes()}


def test_endless_answers_run_out_of_time_and_the_next_ones_are_compared() -> None:
    mixed = [text for endless in ENDLESS for text in (endless, r"\boxed{\frac{2}{4}}")]
    assert set(verdicts("1/2", mixed[1::2], cpu_s=CPU_S)) == {"EQUAL"}
    before = pids()
    found = verdicts("1/2", [*mixed, "7", None], cpu_s=CPU_S)
    assert found == ["OUT_OF_TIME", "EQUAL"] * len(ENDLESS) + ["DIFFERENT", "EQUAL"]
    assert pids() >= before, "no lane was lost"


def test_a_comparison_gets_no_more_memory_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "$" + "+".join(f"x_{{{number}}}" for number in range(1, 200)) + "$"
    assert verdicts(long, [None]) == ["EQUAL"]
    monkeypatch.setattr("mortal_steps.rewards.mathematics.verdicts.MEMORY_MB", 1)
    assert verdicts(long, [None]) != ["EQUAL"]


def test_a_lane_that_was_killed_is_replaced() -> None:
    verdicts("1", ["1"])
    before = pids()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert verdicts("1", ["1", "2"]) == ["EQUAL", "DIFFERENT"]
    assert pids() - before


@contextlib.contextmanager
def ended_by(number: signal.Signals, times: int) -> Iterator[None]:
    """Comparisons get this signal; what ends them waits for their processes to be there."""
    lanes().close()  # which may have lost some since
    lanes.cache_clear()
    verdicts("1", ["1"])
    killer = (
        "import os, psutil, time\n"
        "killed = set()\n"
        f"while len(killed) < {times}:\n"
        f"    for lane in {pids()}:\n"
        "        for child in set(psutil.Process(lane).children()) - killed:\n"
        "            time.sleep(0.1)\n"
        f"            os.kill(child.pid, {number.value})\n"
        "            killed.add(child)\n"
    )
    with subprocess.Popen([sys.executable, "-c", killer]) as process:
        yield
        assert process.wait(60) == 0


def test_comparisons_that_somebody_ends_are_no_verdict() -> None:
    """What is to be ended takes long."""
    with (
        ended_by(signal.SIGKILL, 2),
        pytest.raises(WorkerLostError),
    ):
        verdicts("1", [ENDLESS[0]], cpu_s=60.0)


def test_a_comparison_that_crashes_is_the_completions_own_doing() -> None:
    with ended_by(signal.SIGSEGV, 1):
        assert verdicts("1", [ENDLESS[0]], cpu_s=60.0) == ["CRASHED"]


def test_the_lanes_end_with_their_owner() -> None:
    code = (
        "import os\n"
        "from mortal_steps.rewards.mathematics.verdicts import Comparison, compare_all, lanes\n"
        "compare_all([Comparison(gold='1', answer='1')], cpu_s=10)\n"
        "print(*[lane.pid for lane in lanes().lanes()])\n"
        "os._exit(1)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    for pid in ended.stdout.split():
        assert_ends(int(pid))


def test_each_comparison_is_made_once_and_with_others_of_its_right_answer() -> None:
    a, b = (
        [Comparison(gold=gold, answer=f"{n}") for n in range(LONGEST_SHEET + 1)] for gold in "ab"
    )
    assert sheets_of([*a, *b[:2], *a]) == [a[:-1], a[-1:], b[:2]]


@pytest.mark.parametrize(
    ("gold", "wrong"),
    [
        ("no solution", "is no mathematical expression"),
        (r"\frac{1}{", "is no mathematical expression"),
        (ENDLESS[-1], r"more than 0\.3 s of CPU time"),
    ],
)
def test_a_right_answer_that_cannot_be_compared_is_the_datasets_fault(
    gold: str, wrong: str
) -> None:
    with pytest.raises(DatasetRowError, match=rf"'gold' = .* in row 1 .*{wrong}"):
        Math(column="gold", cpu_s=CPU_S).math_equal(["2", "1"], gold=["2", gold])


def test_completions_are_scored_and_what_they_bring_about_is_counted() -> None:
    said: dict[str, float] = {}
    completions = [[{"role": "assistant", "content": "$1/2$"}], "0.5", "dunno", "2"]
    scores = math_equal(completions, log_metric=said.__setitem__, answer=["0.5", 0.5, "1/2", 0.5])
    assert scores == [1.0, 1.0, 0.0, 0.0]
    assert said == {"math_unparsed": 0.25}


def test_in_a_run_an_endless_answer_scores_0_and_a_bad_row_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    host = RewardHost({"math": Math(cpu_s=CPU_S)})
    config = RewardsConfig(on_error="mask", retries=0)
    shard = make_shard(("$1$", ENDLESS[0]), ("$1$", "2"))
    good, bad = shard.groups
    bad = replace(bad, problem=replace(bad.problem, columns={"answer": "?"}))
    good = replace(good, problem=replace(good.problem, columns={"answer": "1"}))
    shard = replace(shard, groups=[good, bad])
    try:
        scorer = Scorer([Assignment(names=["math"], hosts=[host])], ["math"], config)
        state = TrainerState(global_step=0, max_steps=1)
        scores, _ = scorer.score(shard, state, sha256="")
    finally:
        host.close()
    assert scores.rewards == [[{"math": 1.0}, {"math": 0.0}], [{"math": None}, {"math": None}]]
    assert scores.metrics["math_out_of_time"] == 0.5
    (failure,) = scores.failures
    assert "column 'answer' = '?'" in failure.message


def test_without_math_verify_the_remedy_is_told_before_anything_is_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(RewardError, match=r"pip install 'math-verify=="):
        Math().load()
    with pytest.raises(RewardError, match=r"pip install 'math-verify=="):
        compare_all([Comparison(gold="1", answer="1")], cpu_s=1.0)


def test_a_term_has_the_time_for_a_shard_whose_answers_are_all_stopped():
    assert Math(cpu_s=2.0).time_limit_s(64, 60.0) >= 2 * 64 * 2.0
    assert Math(cpu_s=2.0).time_limit_s(1, 60.0) == 60.0
