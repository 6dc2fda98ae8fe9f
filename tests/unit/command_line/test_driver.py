"""What a user sees of a run before its first worker starts."""

import contextlib
from types import SimpleNamespace

import pytest

from mortal import driver
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.made_up_gpus import let_there_be, several


def test_the_placement_is_printed_before_anything_starts(tmp_path, monkeypatch):
    told = []
    run = SimpleNamespace(
        store=SimpleNamespace(root=tmp_path / "run"),
        config=RunConfig(),
        plan=Plan(RunConfig()),
        info=SimpleNamespace(run_id="run", rounding=None),
        is_complete=lambda: False,
    )
    server = SimpleNamespace(ui_url="http://ui", answering=lambda: server)
    let_there_be(monkeypatch, several(3))
    monkeypatch.setattr(driver, "refuse_if_driven", lambda store: None)
    monkeypatch.setattr(driver, "open_run", lambda *_, **told: run)
    monkeypatch.setattr(driver, "begin_workers_imports", lambda *_: None)
    monkeypatch.setattr(driver, "PrefectStart", lambda **_: contextlib.nullcontext(server))
    monkeypatch.setattr(driver, "say", told.append)
    monkeypatch.setattr(driver, "_run_flow", lambda *_: told.append("the flow runs"))
    monkeypatch.setattr(driver, "is_driven", lambda store: True)
    config = RunConfig(run_id="run", runs_dir=str(tmp_path))
    driver.drive(config)
    placed = [line for line in told if line.startswith("placement: ")]
    assert placed == [
        "placement: actor on GPU 0 (NVIDIA A10G), 2 rollout workers one each on GPU 1, 2 "
        "(NVIDIA A10G)"
    ]
    assert told.index(placed[0]) < told.index("the flow runs")


INTERRUPTED = """
from pydantic import BaseModel, model_serializer


class Settings(BaseModel):
    @model_serializer
    def interrupted(self):
        raise KeyboardInterrupt


Settings().model_dump()
"""


def test_ctrl_c_while_prefect_reads_its_settings_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "settings_interrupted.py").write_text(INTERRUPTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(driver, "FLOW", "settings_interrupted")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(KeyboardInterrupt):
        driver.PrefectStart().go_on()
