"""Servers of OpenEnv, as they are and behind classes as TRL's documentation has them.

OpenEnv's repository has its servers, and no package index. `echo` is what `openenv init` writes;
the others are those of `packages/served_games.py`, of the same games and packages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.environments.table import Tried
from tests.support.environments.served import ECHO

OPENENV = 'type = "openenv"\nurl = "http://127.0.0.1:8000"\n'
WORDS = ("\\boxed{cat}", "\\boxed{dog}", "\\boxed{sun}")
DONE = ("That is all.",)


def _served(make: str, action: str) -> str:
    return f"from served_games import *; serve(lambda: {make}, {action})"


WORDLE = _served('Gem("game:Wordle-v0-easy")', "Say")
SUDOKU = _served('TextArena("Sudoku-v0-very-easy")', "Say")
PYTHON = "import served_games; served_games.serve_python()"
CATCH = _served('OpenSpiel("catch")', "Choose")


def _said(name: str, package: str, server: str, says: Sequence[str], shown: str = "text") -> Tried:
    """Return one in which each message is a step."""
    action = "message" if "Choose" not in server else "action_id"
    config = f'{OPENENV}action = "{action}"\nobservation = "{shown}"'
    what = f"openenv: {name}, messages"
    return Tried(name=what, package=package, config=config, says=says, servers={"url": server})


def _called(
    name: str, package: str, server: str, calls: Sequence[tuple[str, Mapping[str, Any]]], tool: str
) -> Tried:
    """Return one in which the model calls a tool, or those that the server has."""
    config = OPENENV + (f'tool = "{tool}"' if tool else "")
    what = f"openenv: {name}, {'a tool' if tool else 'MCP'}"
    servers = {"url": server}
    return Tried(name=what, package=package, config=config, says=DONE, calls=calls, servers=servers)


def _pushed(name: str) -> Tried:
    server = _served(f'OpenSpiel("{name}")', "Choose")
    calls = [("push", {"action_id": number}) for number in (0, 1, 2, 3)]
    return _called(f"{name} of OpenSpiel", "open-spiel", server, calls, "push")


def _trl(
    name: str,
    servers: Mapping[str, str],
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]] = ({}, {}),
) -> Tried:
    prompt = [{"role": "user", "content": "Play, with tools. "}]
    return Tried(
        name=f"trl: {name}",
        package="openenv",
        config=f'factory = "trl_classes:{name}"',
        reward="trl_classes:earned",
        says=DONE,
        calls=calls,
        rows=[{"prompt": prompt, **row} for row in rows],
        servers=servers,
    )


RUN = [("run_code", {"code": code}) for code in ("print(6 * 7)", "1 / 0", "x = 3\nx + 1")]
GUESSED = [("guess", {"guess": word}) for word in ("cat", "dog", "sun")]
MOVED = [("move", {"direction": "left"}), ("move", {"direction": "right"})]
PLACED = [
    ("place", {"row": 1, "col": 2, "number": 3}),
    ("place", {"row": 9, "col": 9, "number": 1}),
]

OPENENV_TABLE: Sequence[Tried] = (
    _said("echo (openenv init)", "openenv", ECHO, ("Hello.", "And again."), "echoed_message"),
    _called("echo (openenv init)", "openenv", ECHO, [("say", {"message": "Hello."})], "say"),
    _said("Wordle of GEM", "gem-llm", WORDLE, WORDS),
    _said("Sudoku of TextArena", "textarena", SUDOKU, ("[1 2 3]", "[4 5 6]", "[9 9 1]")),
    _said("catch of OpenSpiel", "open-spiel", CATCH, ("0", "1", "2", "left")),
    _pushed("cliff_walking"),
    _pushed("2048"),
    _said("Pong", "ale-py", _served('Atari("pong")', "Choose"), ("0", "2", "3")),
    _called("Python of smolagents", "smolagents", PYTHON, RUN, ""),
    _trl("Echo", {"ENV_URL": ECHO}, [("echo", {"message": "Hello World!"}), ("echo", {})]),
    _trl("Wordle", {"ENV_URL": WORDLE}, GUESSED),
    _trl("Unseeded", {"ENV_URL": WORDLE}, GUESSED),
    _trl("Sudoku", {"ENV_URL": SUDOKU}, PLACED),
    _trl("Catch", {"CATCH_URL": CATCH}, [*MOVED, ("stay", {}), ("move", {"direction": "up"})]),
    _trl(
        "Several",
        {"ENV_URL": WORDLE, "CATCH_URL": CATCH},
        [*GUESSED, *MOVED],
        [{"env": "wordle"}, {"env": "catch"}],
    ),
    _trl("Counter", {}, [("increment", {"step": 1}), ("increment", {"step": 3})]),
)
