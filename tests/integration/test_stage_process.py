"""The process of a stage of a recipe, before its flow has begun."""

import asyncio
import signal

import pytest

from mortal_flows.stage_process import FlowCall, StageProcess
from mortal_steps.errors import ConfigError, WorkerLostError

PATIENCE_S = 60.0


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a stage whose flow is in a module with this text."""

    def begun(text: str) -> StageProcess:
        (tmp_path / "of_a_stage.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        call = FlowCall(flow="of_a_stage:flow", parameters={}, context={})
        return StageProcess(call, tmp_path / "logs" / "stage.log", deployed=False)

    return begun


def ended(process: StageProcess) -> str | None:
    async def wait() -> str | None:
        async with asyncio.timeout(PATIENCE_S):
            return await process.ended()

    return asyncio.run(wait())


def test_an_error_that_is_longer_than_a_pipe_is_told(begin):
    with pytest.raises(ConfigError) as told:
        ended(begin("raise ValueError('x' * 200_000)"))
    assert "x" * 200_000 in str(told.value)


def test_a_stop_in_its_first_moments_is_a_stop(begin):
    process = begin("import time\ntime.sleep(60)")
    process.stop(signal.SIGINT)
    assert ended(process) == "it was asked to stop"


def test_a_process_that_dies_is_told_by_its_log(begin, tmp_path):
    with pytest.raises(WorkerLostError, match=r"stage\.log"):
        ended(begin("import os\nos._exit(3)"))
