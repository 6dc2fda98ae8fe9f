"""Shared memory is looked at before a run begins that needs it."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import save_file

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_room_for_weights
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.store.shared_memory import SHARED_MEMORY


def check(config):
    check_room_for_weights(
        config.rollout, config.sampled_model, adapter=config.training.publishes_adapter
    )


@pytest.fixture
def model(tmp_path):
    """800 numbers, in half precision on the disk."""
    save_file({"a": torch.zeros(400, dtype=torch.bfloat16)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.zeros(20, 20, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors")
    return tmp_path


def config(model, sync="direct", **keys):
    rollout = {"weight_sync": sync, "staleness": 1}
    return RunConfig.model_validate(
        {"model": {"name_or_path": str(model), **keys}, "rollout": rollout}
    )


@pytest.mark.parametrize(
    ("dtype", "num_bytes"), [("float32", 3200), ("bfloat16", 1600), ("auto", None)]
)
def test_every_version_that_is_sampled_with_needs_room(model, monkeypatch, dtype, num_bytes):
    nothing = shutil.disk_usage(SHARED_MEMORY)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: nothing)
    on_disk = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    needed = 4 * (num_bytes or on_disk)  # one for the step of staleness, and three
    with pytest.raises(ConfigError, match=rf"needs {needed:,} bytes in /dev/shm, which has 0 free"):
        check(config(model, dtype=dtype))
    check(config(model, "reload"))


def test_a_machine_with_room_passes(model):
    check(config(model))
    check(config("some/model-of-the-hub"))
