"""The database of our own server: which, and whose."""

import pytest

from mortal.server import local_server as own
from mortal.server.files import (
    EARLIER_VARIABLE,
    VARIABLE,
    ServerRecord,
    database_url,
    read_record,
    without_password,
    write_record,
)
from mortal_steps.errors import ServerError
from mortal_steps.system.processes import ProcessId

POSTGRESQL = "postgresql+asyncpg://me:a%3Ab%2Fc@host:5432/prefect?ssl=require"


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in (VARIABLE, EARLIER_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_sqlite_is_the_default_and_a_variable_names_postgresql(tmp_path, monkeypatch):
    assert database_url(tmp_path) == f"sqlite+aiosqlite:///{tmp_path}/prefect.db"
    for name in (EARLIER_VARIABLE, VARIABLE):
        monkeypatch.setenv(name, POSTGRESQL)
        assert database_url(tmp_path) == POSTGRESQL
        monkeypatch.delenv(name)


def test_a_url_that_prefect_cannot_use_is_refused_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "postgresql://me:secret@host/prefect")
    with pytest.raises(ServerError, match=r"postgresql://me@host/prefect: .*asyncpg") as refused:
        database_url(tmp_path)
    assert "secret" not in str(refused.value)


def test_no_password_is_kept_or_shown():
    assert without_password(POSTGRESQL) == "postgresql+asyncpg://me@host:5432/prefect"
    assert without_password("sqlite+aiosqlite:////a/b.db") == "sqlite+aiosqlite:////a/b.db"


def test_a_server_on_another_database_is_not_joined(tmp_path):
    process = ProcessId(pid=1, started="", boot="")
    mine = database_url(tmp_path)
    record = ServerRecord(api_url="http://x:1/api", process=process, database=mine)
    own._check_database(record, mine)
    with pytest.raises(ServerError, match=rf"keeps its history in .*, but {VARIABLE} asks for"):
        own._check_database(record, without_password(POSTGRESQL))
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
