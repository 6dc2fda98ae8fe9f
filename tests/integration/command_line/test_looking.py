"""What the commands that look at runs print, on terminals and in pipes."""

import io
import json
from pathlib import Path

from rich.console import Console

from mortal.terminal import listing, watching
from mortal_steps.runs.activity import Doing, write_activity
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.store import RunStore
from tests.support.begun_runs import make_run

RED = "\x1b[31m"
FORK = "demo-20261121-224758-fork-3fa2c1"


def test_the_list_is_tab_separated_values_in_a_pipe(mortal, tmp_path):
    make_run(tmp_path, "one", step=3)
    make_run(tmp_path, FORK)
    code, output, _ = mortal("runs", "--runs-dir", tmp_path)
    header, *lines = [line.split("\t") for line in output.splitlines()]
    assert (code, header) == (0, listing.COLUMNS)
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(row["run"], row["status"], row["step"]) for row in rows] == [
        ("one", "stopped", "3"),
        (FORK, "stopped", "0"),
    ]


def test_on_a_narrow_terminal_each_run_has_a_line_with_its_whole_id(mortal, tmp_path, monkeypatch):
    make_run(tmp_path, "one")
    make_run(tmp_path, FORK)
    shown = io.StringIO()
    narrow = Console(file=shown, force_terminal=True, width=80, soft_wrap=True, color_system=None)
    monkeypatch.setattr(listing, "console", narrow)
    assert mortal("runs", "--runs-dir", tmp_path)[0] == 0
    lines = shown.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["run", "one", FORK]
    assert lines[0].split() == list(listing.HEADING)
    assert max(map(len, lines)) < 80


def make_busy(folder: Path, run_id: str) -> RunStore:
    """A run that says that it samples its fourth step; who drives it is for the test."""
    store = make_run(folder, run_id, step=3)
    store.write_record("manifest.json", RunManifest(status="running", step=3), RunManifest)
    store.path("metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "reward": 0.{step}}}\n' for step in (1, 2, 3))
    )
    doing = Doing()
    doing.trained(3, 1.5)
    with doing.calling("generate", "generate", 3, of=4):
        write_activity(store.root, doing.now())
    return store


def test_status_says_what_each_run_waits_for(mortal, tmp_path):
    make_run(tmp_path, "one")
    lease = acquire(make_busy(tmp_path, "busy"))
    try:
        code, output, _ = mortal("status", "--runs-dir", tmp_path)
        found = json.loads(mortal("status", "--json", "--runs-dir", tmp_path)[1])
    finally:
        lease.release()
    header, *lines = [line.split("\t") for line in output.splitlines()]
    busy, one = (dict(zip(header, line, strict=True)) for line in lines)
    assert (code, header) == (0, watching.COLUMNS)
    assert (busy["run"], busy["status"], busy["step"]) == ("busy", "running", "3")
    assert busy["waits_for"].startswith("generate 0/4 shards of step 4")
    assert (busy["reward"], busy["s_per_step"]) == ("0.200", "1.500")
    assert busy["eta_s"] == str(round(1.5 * (int(busy["max_steps"]) - 3)))
    assert (one["run"], one["status"], one["waits_for"]) == ("one", "stopped", "mortal resume one")
    assert [each["run_id"] for each in found] == ["busy", "one"]
    after = mortal("status", "--runs-dir", tmp_path)[1]
    assert "busy\tinterrupted" in after and "mortal resume busy" in after and "shards" not in after


def test_on_a_narrow_terminal_the_status_has_whole_ids(mortal, tmp_path, monkeypatch):
    make_run(tmp_path, FORK)
    lease = acquire(make_busy(tmp_path, "busy"))
    shown = io.StringIO()
    narrow = Console(file=shown, force_terminal=True, width=80, soft_wrap=True, color_system=None)
    monkeypatch.setattr(watching, "console", narrow)
    try:
        assert mortal("status", "--once", "--runs-dir", tmp_path)[0] == 0
    finally:
        lease.release()
    heading, busy, waits, fork, resume = shown.getvalue().splitlines()
    assert heading.split() == ["run", "status", "step", "reward", "held-out", "s/step", "when"]
    assert busy.startswith("busy ") and fork.startswith(f"{FORK}  stopped")
    assert waits.startswith("    generate 0/4 shards") and resume == f"    mortal resume {FORK}"


def test_logs_are_of_the_flow_or_of_a_role(mortal, tmp_path):
    store = make_run(tmp_path, "one")
    logs = store.path("logs")
    logs.mkdir()
    (logs / "flow.log").write_text("".join(f"line {number}\n" for number in range(1000)))
    (logs / "actor-0.log").write_text(f"{RED}red\n")
    for number in (0, 1):
        (logs / f"rollout-{number}.log").write_text(f"from {number}\nnot whole")
    where = ("one", "--runs-dir", tmp_path)
    assert mortal("logs", *where, "-n", 2)[1] == "line 998\nline 999\n"
    assert mortal("logs", *where, "-n", 2000)[1].count("\n") == 1000
    assert mortal("logs", *where, "--role", "actor", "--follow")[1] == "\\x1b[31mred\n"
    both = mortal("logs", *where, "--role", "rollout")[1]
    assert both == "rollout-0 | from 0\nrollout-1 | from 1\n"
    assert mortal("logs", *where, "--role", "rollout", "--worker", 1)[1] == "from 1\n"
    code, _, errors = mortal("logs", *where, "--role", "reward")
    assert code == 1 and "no log of reward in" in errors
    assert "(logs there: actor-0, flow, rollout-0, rollout-1)" in errors
    assert "the roles are actor, rollout, reward" in mortal("logs", *where, "--role", "judge")[2]


def test_samples_of_a_run_that_has_done_nothing_are_an_error(mortal, tmp_path):
    make_run(tmp_path, "one")
    code, _, errors = mortal("samples", "one", "--step", "3", "--runs-dir", tmp_path)
    assert code == 1 and "no completions of step 3: run one has not done a step yet" in errors
