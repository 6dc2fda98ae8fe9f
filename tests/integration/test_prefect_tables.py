"""The tables of our own server's database are made once for each version of Prefect."""

import sqlite3
from contextlib import closing

import pytest

from mortal.server.process import has_tables
from tests.support.prefect_database import make, put_database


@pytest.fixture
def made(tmp_path):
    path = tmp_path / "prefect.db"
    put_database(path)
    return path


def query(path, statement):
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement).fetchall()


def test_an_empty_database_needs_tables_and_a_complete_one_does_not(tmp_path, made):
    empty = tmp_path / "empty.db"
    empty.touch()
    assert not has_tables(empty)
    assert has_tables(made)
    assert ("grpo-train",) not in query(made, "select name from flow")
    assert query(made, "select slug from block_type") != []


def test_a_database_of_another_version_is_migrated(made):
    query(made, "pragma user_version = 1")
    query(made, "insert into flow (id, name) values ('1', 'kept')")
    assert not has_tables(made)
    make(made)
    assert has_tables(made)
    assert query(made, "select name from flow") == [("kept",)]
