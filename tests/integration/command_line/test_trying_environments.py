"""`mortal test-environment`: tools and environments without a model."""

import json

import pytest

from tests.support.environments import unsteady

CONFIG = f"""
[data]
source = "rows.jsonl"
[environment]
factory = {{ steady = "{unsteady.__file__}:Steady", unique = "{unsteady.__file__}:Unique" }}
[rewards]
functions = ["{unsteady.__file__}:near"]
"""
PROMPT = [{"role": "user", "content": "Shop."}]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG)
    rows = [{"prompt": PROMPT, "environment": kind, "target": 7} for kind in ("steady", "unique")]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def test_tools_answers_and_rewards_are_printed(mortal):
    code, output, _ = mortal("test-environment", "c.toml", "--rows", 1)
    assert code == 0
    for shown in (
        "steady, reward Steady (get_reward)",
        "add(amount: integer, what?: string)  Add an amount.",
        "user: Shop. Reach 7 from 0.",
        "add(amount=2, what='text 2')",
        "Steady 3.000",
        "near 0.300",
        "the same answers",
    ):
        assert shown in output


def test_the_call_that_differs_ends_it_with_1(mortal, project):
    (project / "calls.jsonl").write_text('{"name": "answer", "arguments": {}}\n')
    command = ("test-environment", "c.toml", "--calls", "calls.jsonl", "--json")
    code, output, _ = mortal(*command)
    found = json.loads(output)
    assert code == 1
    assert [len(row["differences"]) for row in found["rows"]] == [0, 2]
    assert "train-1: answer() differs" in found["conclusions"][0]


def test_a_configuration_without_environments_has_nothing_to_try(mortal, project):
    (project / "c.toml").write_text('[data]\nsource = "rows.jsonl"\n')
    code, _, errors = mortal("test-environment", "c.toml")
    assert code == 1 and "environment.factory" in errors
