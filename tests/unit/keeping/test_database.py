"""The database of our own server: which, whose, how large."""

import sqlite3

import pytest

from mortal.server import database, own
from mortal.server.database import (
    EARLIER_VARIABLE,
    VARIABLE,
    database_url,
    file_use,
    give_back_space,
    own_sqlite,
    sqlite_file,
    without_password,
)
from mortal.server.files import ServerRecord, read_record, write_record
from mortal_steps.errors import ServerError
from mortal_steps.system.processes import ProcessId

POSTGRESQL = "postgresql+asyncpg://me:a%3Ab%2Fc@host:5432/prefect?ssl=require"


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(EARLIER_VARIABLE, raising=False)


@pytest.mark.parametrize("variable", [VARIABLE, EARLIER_VARIABLE])
def test_sqlite_is_the_default_and_a_variable_names_postgresql(tmp_path, monkeypatch, variable):
    assert sqlite_file(database_url(tmp_path)) == tmp_path / "prefect.db"
    monkeypatch.setenv(variable, POSTGRESQL)
    assert database_url(tmp_path) == POSTGRESQL
    assert sqlite_file(POSTGRESQL) is None


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
    mine = own_sqlite(tmp_path)
    record = ServerRecord(api_url="http://x:1/api", process=process, keep=False, database=mine)
    own._check_database(record, mine)
    with pytest.raises(ServerError, match=rf"keeps its history in .*, but {VARIABLE} asks for"):
        own._check_database(record, without_password(POSTGRESQL))
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record


def test_a_file_is_made_smaller_once_most_of_it_is_free(tmp_path, monkeypatch):
    path = tmp_path / "state #1 100%25?" / "prefect.db"
    path.parent.mkdir()
    path.touch()
    assert not give_back_space(path), "a new one holds nothing"
    monkeypatch.setattr(database, "WORTH_IT", 2**20)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("create table log (line text)")
    db.executemany("insert into log values (?)", [("x" * 10_000,)] * 400)
    assert not give_back_space(path)
    db.execute("delete from log where rowid > 3")
    assert file_use(path).is_mostly_free
    large = file_use(path).num_bytes
    db.close()
    assert give_back_space(path)
    assert path.stat().st_size < large / 10
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from log").fetchone() == (3,)
