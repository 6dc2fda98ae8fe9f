"""Each part of the check of a GPU starts and reports, in a tiny size on the CPU."""

import json
import subprocess
import sys
import tarfile
import zipfile

import pytest

from benchmarks.gpu_check.__main__ import PARTS
from benchmarks.gpu_check.parcels import pack, unpack
from tests.support.paths import ROOT, VLLM_PYTHON

CHECK = (sys.executable, "-m", "benchmarks.gpu_check")


def report(folder, part):
    """The checks of a part as its file has them; its table is beside it."""
    assert (folder / f"{part}.txt").read_text().count("\n") > 3
    return json.loads((folder / f"{part}.json").read_text())["checks"]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_starts_and_reports(part, tmp_path):
    command = [*CHECK, part, "--tiny", "--output", str(tmp_path), "--vllm-python", str(VLLM_PYTHON)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = report(tmp_path, part)
    assert checks
    assert all(check["passed"] and check["took_s"] >= 0 for check in checks)


def test_what_a_part_has_no_time_for_counts_as_failed(tmp_path):
    command = [*CHECK, "rates", "--tiny", "--minutes", "0", "--output", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 1
    checks = report(tmp_path, "rates")
    assert not any(check["passed"] for check in checks)
    assert {check["measured"] for check in checks} == {"left out: the part's time is over"}


def test_vllm_travels_in_two_parcels_without_what_a_dense_model_does_not_need(tmp_path):
    kept = {"vllm/_C_stable_libtorch.abi3.so", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"}
    kept |= {"vllm/__init__.py", "vllm-0.31.0.dist-info/METADATA"}
    left_out = {"vllm/vllm-rs", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"}
    with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as wheel:
        for name in kept | left_out:
            wheel.writestr(name, name)
    pack(tmp_path / "vllm.whl", tmp_path / "parcels")
    with tarfile.open(tmp_path / "parcels/1/vllm.tar.xz") as first:
        assert first.getnames() == ["vllm/_C_stable_libtorch.abi3.so"]
    for number in "12":
        unpack(tmp_path / "parcels" / number, tmp_path / "there")
    there = {path for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path / "there")) for path in there} == kept
