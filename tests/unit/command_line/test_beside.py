"""Prefect's import, beside the checks of a run."""

import pytest

from mortal import beside

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
    monkeypatch.setattr(beside, "FLOW", "settings_interrupted")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(KeyboardInterrupt):
        beside.PrefectBeside(port=0, keep=False).go_on()
