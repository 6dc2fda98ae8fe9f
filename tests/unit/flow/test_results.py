"""Results of task runs where the disk takes none."""

import asyncio
import logging

from mortal_tasks import results
from mortal_tasks.results import ResultFolder


def test_a_result_that_cannot_be_written_fails_no_task_run(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(results, "get_run_logger", logging.getLogger)
    (tmp_path / "file").write_bytes(b"")

    def write():
        folder = ResultFolder(basepath=str(tmp_path / "file" / "results"))
        return asyncio.run(folder.awrite_path("key", b"content"))

    assert write().endswith("key")
    assert "Training goes on" in caplog.text
