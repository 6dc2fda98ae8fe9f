"""mortal.server.tables: the database of a new Prefect server, with no migration; and
mortal.server.blocks: what is written into it later."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from mortal.server import tables
from mortal.server.database import SQLITE, VARIABLE
from mortal.server.process import BLOCKS_LATER
from mortal.server.tables import has_all_tables
from tests.support.prefect_database import migrated_database


@pytest.fixture
def empty(tmp_path):
    path = tmp_path / "prefect.db"
    path.touch()
    return path


def schema(path):
    """Everything but the order of a table's constraints, which is another one each time that the
    migrations run."""
    with closing(sqlite3.connect(path)) as database:
        made = database.execute("select type, name, tbl_name, sql from sqlite_master").fetchall()
        columns = {
            name: database.execute(f"pragma table_xinfo('{name}')").fetchall()
            for kind, name, _, _ in made
            if kind == "table"
        }
        settings = [
            database.execute(f"pragma {name}").fetchone()
            for name in ("journal_mode", "page_size", "encoding", "user_version", "auto_vacuum")
        ]
        revision = database.execute("select * from alembic_version").fetchall()
    statements = {
        (kind, name, of): sorted(line.strip(" ,\t") for line in (sql or "").splitlines())
        for kind, name, of, sql in made
    }
    return statements, columns, settings, revision


def test_an_empty_database_gets_exactly_what_the_migrations_make(empty):
    assert has_all_tables(empty)
    assert schema(empty) == schema(migrated_database())
    assert has_all_tables(empty)  # and nothing is made twice


def test_a_database_of_an_earlier_prefect_is_left_to_the_migrations(empty):
    has_all_tables(empty)
    with closing(sqlite3.connect(empty)) as database, database:
        database.execute("update alembic_version set version_num = 'earlier'")
    before = empty.read_bytes()
    assert not has_all_tables(empty)
    assert empty.read_bytes() == before


def test_tables_of_somebody_else_are_left_alone(empty):
    with closing(sqlite3.connect(empty)) as database, database:
        database.execute("create table noise (number int)")
    assert not has_all_tables(empty)


def test_another_prefect_makes_its_tables_itself(empty, tmp_path, monkeypatch):
    outcome = tmp_path / "prefect.sql"
    digest = tables.migrations_digest()
    assert digest
    outcome.write_text(tables.OUTCOME.read_text().replace(digest, "0" * 64))
    monkeypatch.setattr(tables, "OUTCOME", outcome)
    assert not has_all_tables(empty)
    assert not empty.stat().st_size


def test_no_file_is_made_where_there_is_none(tmp_path):
    assert not has_all_tables(tmp_path / "prefect.db")
    assert not list(tmp_path.iterdir())


SERVED = """
import asyncio, sqlite3, sys
from pathlib import Path
from prefect.server.api.server import create_app
from mortal.server.blocks import register_block_types

home = Path(sys.argv[1])

def count():
    return sqlite3.connect(home / "prefect.db").execute(
        "select count(*), max(updated) from block_type").fetchone()

async def serve():
    app = create_app(final=True)
    async with app.router.lifespan_context(app):
        assert count() == (0, None)
        await register_block_types(0)
        once = count()
        await register_block_types(0)
        return once, count()

once, twice = asyncio.run(serve())
print(once[0], once == twice, (home / "memo_store.toml").exists())
"""


def test_types_of_blocks_are_registered_once_after_the_server_has_started(empty, tmp_path):
    assert has_all_tables(empty)
    settings = {
        **BLOCKS_LATER,
        "PREFECT_HOME": str(tmp_path),
        VARIABLE: f"{SQLITE}:///{empty}",
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    done = subprocess.run(
        [sys.executable, "-c", SERVED, str(tmp_path)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    number, same, remembered = done.stdout.split()[-3:]
    assert int(number) > 10 and same == remembered == "True"
