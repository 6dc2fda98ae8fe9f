"""What is asked of a Prefect server, where none answers."""

from types import SimpleNamespace
from uuid import uuid4

from mortal.server import api


def test_a_server_that_never_answers_has_not_said_that_all_is_written(monkeypatch):
    monkeypatch.setattr(api, "HISTORY_TIMEOUT_S", 0.5)
    nobody = SimpleNamespace(api_url="http://127.0.0.1:9/api")
    assert api.wait_for_history(nobody, uuid4()) is None
