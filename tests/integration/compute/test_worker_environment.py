"""The environment variables of a worker's process."""

import os
import subprocess
import sys

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local_container import worker_environment

ASK = "from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)"


@pytest.mark.parametrize(
    ("set_by_the_user", "is_off"),
    [({}, "True"), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, "False")],
    ids=["by default", "wished"],
)
def test_a_worker_tells_nobody_of_its_trainer_unless_the_user_wishes_it(
    monkeypatch, set_by_the_user, is_off
):
    for name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_by_the_user.items():
        monkeypatch.setenv(name, value)
    environment = worker_environment(WorkerSpec(factory="a:B", kwargs={}), {})
    asked = {"env": {**os.environ, **environment}, "text": True, "timeout": 60}
    assert subprocess.check_output([sys.executable, "-c", ASK], **asked).strip() == is_off
