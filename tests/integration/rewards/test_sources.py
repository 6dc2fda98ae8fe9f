"""mortal_steps.rewards.sources: edited reward functions are noticed."""

import os
import signal
from pathlib import Path

import pytest

from mortal_steps.errors import RewardError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.source_history import SOURCES_FILE, find_history
from mortal_steps.rewards.sources import (
    begin_sources,
    check_files,
    check_sources,
    find_sources,
    note_sources,
)
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.refused import refused
from tests.support.rewards.accepted import accepted_now
from tests.support.rewards.processes import assert_ends, supervisors

FILES = {
    "judges/rewards.py": """
import json, numpy
import helper

def correct(completions, **kwargs):
    from shared.lengths import of
    return [helper.ONE * of(text) for text in completions]
""",
    "judges/helper.py": "ONE = 1.0",
    "judges/unused.py": "",
    "shared/__init__.py": "from . import deeper",
    "shared/deeper.py": "",
    "shared/lengths.py": "import importlib\nof = importlib.import_module('by_name').of",
    "by_name.py": "of = len",
    "mine/rewards.py": "from .near import correct",
    "mine/near.py": "def correct(completions, **kwargs):\n    return [1.0 for _ in completions]",
    "json.py": "raise ImportError('not the one of the standard library')",
}
FUNCTION = "judges/rewards.py:correct"
PROBLEM = Problem(id="train-0", prompt="ab=", columns={})


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(rewards={"functions": FUNCTION})


@pytest.fixture
def store(project: Path) -> RunStore:
    return RunStore(project / "runs" / "r")


def test_what_a_function_imports_of_the_project_is_part_of_it(project: Path) -> None:
    found = find_sources([FUNCTION, "mine.rewards:correct"], project)
    assert set(found.files) == {
        *("judges/rewards.py", "judges/helper.py", "by_name.py"),
        *("shared/__init__.py", "shared/deeper.py", "shared/lengths.py"),
        *("mine/rewards.py", "mine/near.py"),
    }
    assert find_sources(["mortal.rewards.functions:exact_match"], project).files == {}


def test_an_edited_function_stops_the_run_until_it_is_accepted(
    project: Path, store: RunStore, config: RunConfig
) -> None:
    begin_sources(store, Plan(config).code, project, step=0)
    note_sources(store, Plan(config).code, project, step=3)
    assert len(find_history(store)) == 1
    (project / "judges/helper.py").write_text("ONE = 2.0")
    (project / "shared/lengths.py").write_text("of = len")
    with pytest.raises(RewardError) as caught:
        check_sources(store, Plan(config).code, project)
    said = str(caught.value)
    assert "by_name.py is not used any more; judges/helper.py was altered; shared/leng" in said
    assert "/r --accept-changed-rewards`" in said
    with refused(RewardError, "judges/helper.py", "altered"):
        note_sources(store, Plan(config).code, project, step=5)
    accepted = accepted_now(config, project)
    assert f"rewards.accept_changed = {accepted.rewards.accept_changed!r}" in said
    assert accepted.fingerprint() == config.fingerprint()
    check_sources(store, Plan(accepted).code, project)
    note_sources(store, Plan(accepted).code, project, step=5)
    assert [entry.step for entry in find_history(store)] == [0, 5]
    check_sources(store, Plan(config).code, project)
    (project / "judges/rewards.py").unlink()
    with refused(RewardError, "judges/rewards.py", "missing"):
        check_sources(store, Plan(accepted).code, project)


def test_an_edited_environment_stops_the_run_as_an_edited_function_does(
    project: Path, store: RunStore
) -> None:
    (project / "shop.py").write_text("import helper")
    (project / "helper.py").write_text("")
    config = RunConfig(
        rewards={"functions": FUNCTION},
        environment={"factory": {"shop": "shop.py:Shop"}, "tools": ["mine.rewards:correct"]},
    )
    begin_sources(store, Plan(config).code, project, step=0)
    check_files(store, Plan(config).code, project)
    noted = find_history(store)[0].sources.files.keys()
    assert {"shop.py", "helper.py", "mine/near.py", "judges/rewards.py"} <= noted
    (project / "helper.py").write_text("x = 1")
    told = r"tools or environments are not those.*helper\.py was altered"
    for check in (check_sources, check_files):
        with pytest.raises(RewardError, match=told):
            check(store, Plan(config).code, project)
    check_files(store, Plan(accepted_now(config, project)).code, project)


def test_a_reward_model_that_changed_stops_the_run(project: Path, store: RunStore) -> None:
    folder = project / "models/judge"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_text("{}")
    terms = [{"type": "model", "model": "./models/judge", "tokenizer": "words"}]
    (project / "words").mkdir()
    (project / "words/vocab.json").write_text("{}")
    config = RunConfig(rewards={"terms": terms}, evaluation={"functions": "org/judge"})
    begin_sources(store, Plan(config).code, project, step=0)
    assert find_history(store)[0].sources.files.keys() == {
        "models/judge/config.json",
        "models/judge/model.safetensors",
        "words/vocab.json",
    }
    (folder / "README.md").write_text("Other words.")
    check_sources(store, Plan(config).code, project)
    (folder / "model.safetensors").write_text("[]")
    (project / "words/vocab.json").write_text("{ }")
    said = r"models/judge/model\.safetensors was altered; words/vocab\.json was altered\. Restore"
    with pytest.raises(RewardError, match=said):
        check_sources(store, Plan(config).code, project)
    check_sources(store, Plan(accepted_now(config, project)).code, project)


def test_a_run_that_began_without_noting_its_sources_goes_on(
    project: Path, store: RunStore, config: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    check_sources(store, Plan(config).code, project)
    note_sources(store, Plan(config).code, project, step=7)
    assert "sources are noted from step 7 on" in caplog.text
    assert [entry.step for entry in find_history(store)] == [7]


def test_relative_names_start_where_the_run_began(
    project: Path, store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_sources(store, Plan(config).code, project, step=0)
    monkeypatch.chdir("/")
    check_sources(store, Plan(config).code, project)


def test_a_host_that_starts_again_in_mid_run_does_not_score_with_other_functions(
    project: Path, store: RunStore, config: RunConfig
) -> None:
    begin_sources(store, Plan(config).code, project, step=0)
    others = supervisors()
    worker = RewardWorker(run_dir=str(store.root), plan=Plan(config).scoring, num_steps=1)
    try:
        worker.dry_run(problems=[PROBLEM])
        (project / "judges/helper.py").write_text("ONE = 2.0")
        worker.dry_run(problems=[PROBLEM])  # the same process, so the same functions
        (process,) = supervisors() - others
        os.kill(process, signal.SIGKILL)
        assert_ends(process)
        with refused(RewardError, "judges/helper.py", "altered"):
            worker.dry_run(problems=[PROBLEM])
    finally:
        worker.close()
    assert store.path(SOURCES_FILE).exists()


OWN = {
    "gmpo.py": "import helper_of_loss",
    "helper_of_loss.py": "",
    "engines/plain.py": "",
    "thoughts.py": "",
    "feeds.py": "",
}
NAMED = {
    "algorithm": {"type": "gmpo.py:GMPO", "clip_range": 0.1},
    "rollout": {
        "engine": "engines.plain:Plain",
        "episodes": "thoughts:Thoughts",
        "source": "feeds.py:Feed",
    },
}


@pytest.fixture
def own(project: Path) -> RunConfig:
    """A run whose algorithm, engine, episodes and batch source are the user's own."""
    for name, content in OWN.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    return RunConfig.model_validate({"rewards": {"functions": FUNCTION}, **NAMED})


@pytest.mark.parametrize("edited", OWN)
def test_edited_code_that_samples_or_trains_stops_a_resumed_run_until_it_is_accepted(
    project: Path, store: RunStore, own: RunConfig, edited: str
) -> None:
    begin_sources(store, Plan(own).code, project, step=0)
    check_sources(store, Plan(own).code, project)
    (project / edited).write_text("x = 1")
    check_files(store, Plan(own).code, project)  # of a worker, which needs none of it to score
    with pytest.raises(RewardError) as caught:
        check_sources(store, Plan(own).code, project)
    accepted = accepted_now(own, project)
    for part in (f"{edited} was altered", "gmpo.py:GMPO", str(accepted.rewards.accept_changed)):
        assert part in str(caught.value)
    note_sources(store, Plan(accepted).code, project, step=5)
    assert [entry.step for entry in find_history(store)] == [0, 5]
    check_sources(store, Plan(own).code, project)


def test_a_run_that_noted_what_scores_alone_goes_on_and_notes_the_rest(
    project: Path, store: RunStore, own: RunConfig, config: RunConfig
) -> None:
    begin_sources(store, Plan(config).code, project, step=0)  # all that MORTAL 0.1.0 noted
    (project / "gmpo.py").write_text("x = 1")
    check_sources(store, Plan(own).code, project)
    note_sources(store, Plan(own).code, project, step=4)
    note_sources(store, Plan(own).code, project, step=6)
    assert [entry.step for entry in find_history(store)] == [0, 4]
    (project / "gmpo.py").write_text("x = 2")
    with refused(RewardError, "gmpo.py", "altered"):
        check_sources(store, Plan(own).code, project)


def test_what_decides_no_numbers_may_be_edited(project: Path, store: RunStore) -> None:
    for name in ("tracked.py", "loads.py", "rows.py"):
        (project / name).write_text("")
    config = RunConfig.model_validate(
        {
            "rewards": {"functions": FUNCTION},
            "logging": {"report_to": ["tracked.py:Tracker"]},
            "rollout": {"weight_sync": "loads.py:Loads"},
            "data": {"source": "rows.py:rows"},  # they were read when the run began
        }
    )
    begin_sources(store, Plan(config).code, project, step=0)
    for name in ("tracked.py", "loads.py", "rows.py"):
        (project / name).write_text("x = 1")
    check_sources(store, Plan(config).code, project)
