"""mortal_steps.system.resources: cores by affinity and quota."""

import os
from pathlib import Path

import pytest

from mortal_steps.system.resources import num_cores, quota_cores


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"cpu.{name}").write_text(content)


@pytest.mark.parametrize("own", ["0::/\n", "0::/service\n", "0::/service/unit\n", "0::/host/s1\n"])
def test_the_lowest_quota_of_a_cgroup_and_those_above_counts(tmp_path: Path, own: str) -> None:
    put(tmp_path, max="150000 100000\n")
    put(tmp_path / "service", max="max 100000\n")
    put(tmp_path / "service/unit", max="50000 100000\n")
    assert quota_cores(tmp_path, own) == (0.5 if own.endswith("unit\n") else 1.5)


def test_there_is_one_core_at_least_and_no_more_than_the_affinity_allows() -> None:
    assert 1 <= num_cores() <= len(os.sched_getaffinity(0))
