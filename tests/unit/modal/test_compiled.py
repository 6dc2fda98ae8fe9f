"""What vLLM compiled in one container is found by the next one, whole or not at all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.places.modal.inside import compiled
from mortal_steps.places.modal.inside.compiled import CACHES, PINS, compiled_for
from mortal_steps.places.modal.inside.host import WorkerHost
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.modal.requests import REQUEST
from tests.support.modal.travel import Volume

SAMPLED = {"rollout": {"engine": "vllm"}, "compute": {"backend": "modal"}}
WITH_OPTIONS = {"rollout": {"engine": "vllm", "engine_options": {"max_num_seqs": 8}}}
ORDER_TO_START = replace(REQUEST, role="rollout", method="start", label="start", payload={})
INDEX = Path("vllm/torch_compile_cache/abc/vllm_compile_cache.py")


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Start a container with the image of vLLM and the GPU of this name; its own disk is empty."""
    started = iter(range(100))

    def start(gpu="NVIDIA A10, 580.1", pins="31"):
        for name in CACHES:
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setenv(PINS, pins)
        monkeypatch.setattr(compiled, "gpu_versions", lambda: {"GPU": gpu} if gpu else {})
        monkeypatch.setattr(compiled, "HERE", tmp_path / f"disk-{next(started)}")

    start()
    return start


def kept_for(values, hub):
    config = RunConfig.model_validate(values)
    return compiled_for(Plan(config).sampler.rollout, config.sampled_model, hub)


def unpacked(hub, values=SAMPLED):
    found = kept_for(values, hub)
    found.unpack()
    return found


def compile_something(content="index"):
    index = Path(os.environ["VLLM_CACHE_ROOT"]).parent / INDEX
    index.parent.mkdir(parents=True)
    index.write_text(content)


def found_index():
    index = Path(os.environ["VLLM_CACHE_ROOT"]).parent / INDEX
    return index.read_text() if index.exists() else None


def test_a_new_container_finds_what_another_compiled(container, tmp_path):
    first = unpacked(tmp_path)
    compile_something()
    assert first.keep()
    assert not first.keep(), "once is enough"
    container()
    second = unpacked(tmp_path)
    assert found_index() == "index"
    assert not second.keep(), "the Volume has it"


@pytest.mark.parametrize(
    ("gpu", "pins", "values"),
    [
        ("NVIDIA A100-SXM4-80GB, 580.1", "31", SAMPLED),
        ("NVIDIA A10, 590.2", "31", SAMPLED),
        ("NVIDIA A10, 580.1", "32", SAMPLED),
        ("NVIDIA A10, 580.1", "31", {**SAMPLED, "model": {"name_or_path": "other/model"}}),
        ("NVIDIA A10, 580.1", "31", WITH_OPTIONS),
    ],
)
def test_another_gpu_version_model_or_option_compiles_for_itself(
    container, tmp_path, gpu, pins, values
):
    first = unpacked(tmp_path)
    compile_something()
    first.keep()
    container(gpu, pins)
    assert unpacked(tmp_path, values) is not None
    assert found_index() is None


def test_what_is_only_half_there_is_never_used(container, tmp_path):
    """The Volume was committed, or the container killed, while it was written."""
    first = unpacked(tmp_path)
    compile_something()
    first.keep()
    (kept,) = tmp_path.glob("compiled/*/*.tar")
    whole = kept.read_bytes()
    for part in (whole[:-100], whole[: len(whole) // 2], b""):
        kept.write_bytes(part)
        container()
        again = unpacked(tmp_path)
        assert found_index() is None
    compile_something()
    assert again.keep(), "the next one brings it whole"
    container()
    unpacked(tmp_path)
    assert found_index() == "index"


def test_of_two_that_were_kept_at_once_all_containers_take_the_same(container, tmp_path):
    both = []
    for content in ("one", "other"):
        container()
        both.append(unpacked(tmp_path / content))
        compile_something(content)
        both[-1].keep()
    for file in (tmp_path / "other").glob("compiled/*/*.tar"):
        file.rename(next((tmp_path / "one/compiled").iterdir()) / file.name)
    taken = set()
    for _ in range(3):
        container()
        unpacked(tmp_path / "one")
        taken.add(found_index())
    assert len(taken) == 1


@pytest.mark.parametrize("name", CACHES)
def test_a_place_of_the_users_own_is_left_alone(container, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "/mine")
    assert kept_for(SAMPLED, tmp_path) is None


def test_nothing_is_kept_without_a_gpu_or_with_another_engine(container, tmp_path):
    container(gpu=None)
    assert kept_for(SAMPLED, tmp_path) is None
    container()
    assert kept_for({}, tmp_path) is None


class Engine:
    """A worker that compiles when it starts."""

    def call(self, role, method, payload, label):
        compile_something()

    def close(self):
        pass


def test_a_container_keeps_it_once_its_engine_has_started(container, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    runs, hub = Volume(tmp_path / "runs"), Volume(tmp_path / "hub")
    (runs.root / "run").mkdir(parents=True)
    host = WorkerHost(
        runs_dir=runs.root, run_id="run", volume=runs, volume_name=REQUEST.volume, hub=hub
    )
    host._workers, host._settings, host._compiled = Engine(), REQUEST.settings, unpacked(hub.root)
    result = host.call(ORDER_TO_START)
    assert result.error is None
    assert hub.asked == ["commit"]
    assert list(hub.root.glob("compiled/*/*.tar"))


def test_a_full_volume_does_not_fail_the_call(container, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    runs, hub = Volume(tmp_path / "runs"), Volume(tmp_path / "hub")
    (runs.root / "run").mkdir(parents=True)

    def full():
        raise RuntimeError("no space left")

    monkeypatch.setattr(hub, "commit", full)
    host = WorkerHost(
        runs_dir=runs.root, run_id="run", volume=runs, volume_name=REQUEST.volume, hub=hub
    )
    host._workers, host._settings, host._compiled = Engine(), REQUEST.settings, unpacked(hub.root)
    assert host.call(ORDER_TO_START).error is None
    assert "not kept for other containers" in caplog.text
