"""Each load of the check of a GPU starts and reports, in a tiny size on the CPU."""

import subprocess
import sys

import pytest

from benchmarks.gpu_check.loads import LOADS
from benchmarks.gpu_check.record import read
from tests.support.paths import ROOT, VLLM_PYTHON

CHECK = (sys.executable, "-m", "benchmarks.gpu_check")


@pytest.mark.parametrize("load", LOADS)
def test_each_load_starts_and_reports(load, tmp_path):
    command = [*CHECK, str(load), "--tiny", "--minutes", "3", "--output", str(tmp_path)]
    command += ["--vllm-python", str(VLLM_PYTHON)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"load-{load}.txt").read_text().count("\n") > 3
    record = read(tmp_path / f"load-{load}.json")
    assert {checked.part for checked in record.checks} == {part.name for part in LOADS[load].parts}
    assert all(checked.passed and checked.took_s >= 0 for checked in record.checks)


def test_what_a_load_has_no_time_for_counts_as_failed(tmp_path):
    command = [*CHECK, "5", "--tiny", "--minutes", "0", "--output", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 1
    checks = read(tmp_path / "load-5.json").checks
    assert not any(checked.passed for checked in checks)
    assert {checked.measured for checked in checks} == {"left out: the part's time is over"}
