"""mortal.server.tables: the database of a new Prefect server is made once and copied."""

import sqlite3
from contextlib import closing

import pytest

from mortal.server.tables import has_all_tables, is_empty, kept_database
from tests.support.prefect_database import make, put_database


@pytest.fixture
def empty(tmp_path):
    path = tmp_path / "prefect.db"
    path.touch()
    return path


@pytest.fixture
def kept(tmp_path):
    """The copy that earlier tests or this one has made."""
    put_database(tmp_path / "unused" / "prefect.db")


def query(path, statement):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def test_what_the_first_server_makes_is_kept_and_copied(empty, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = tmp_path / "first" / "prefect.db"
    first.parent.mkdir()
    assert not has_all_tables(empty) and is_empty(empty)
    make(first)
    assert has_all_tables(empty) and not is_empty(empty)
    for statement in (
        "select type, name, tbl_name, sql from sqlite_master order by name",
        "select * from alembic_version",
        "select slug from block_type order by slug",
    ):
        assert query(first, statement) == query(empty, statement) != []
    assert [each.name for each in (tmp_path / "cache" / "mortal").iterdir()] == [
        kept_database().name
    ]


def test_a_cache_that_cannot_be_written_is_reported_and_not_needed(tmp_path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "home").mkdir()
    make(tmp_path / "home" / "prefect.db")
    assert not is_empty(tmp_path / "home" / "prefect.db")
    assert "could not be written" in capfd.readouterr().err


@pytest.mark.usefixtures("kept")
def test_a_database_of_an_earlier_prefect_is_left_to_the_migrations(empty):
    assert has_all_tables(empty)
    with closing(sqlite3.connect(empty)) as database, database:
        database.execute("update alembic_version set version_num = 'earlier'")
    before = empty.read_bytes()
    assert not has_all_tables(empty)
    assert empty.read_bytes() == before


@pytest.mark.usefixtures("kept")
def test_tables_of_somebody_else_are_left_alone(empty):
    with closing(sqlite3.connect(empty)) as database, database:
        database.execute("create table noise (number int)")
    assert not has_all_tables(empty) and not is_empty(empty)


@pytest.mark.usefixtures("kept")
def test_no_file_is_made_where_there_is_none(tmp_path):
    assert not has_all_tables(tmp_path / "prefect.db")
    assert not (tmp_path / "prefect.db").exists()
