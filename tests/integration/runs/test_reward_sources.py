"""A run knows the sources of its reward functions, from wherever it goes on."""

from pathlib import Path

import pytest

from mortal_steps.errors import RewardError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import accept_changed_rewards, open_run
from mortal_steps.report.summary import summarize
from mortal_steps.rewards.source_history import SOURCES_FILE, find_history
from mortal_steps.runs.verify import check_run
from tests.support.bare_flow import project_config, unchecked

KEY = "reward/0/0"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Of a run that has begun in `tmp_path` with a relative path to its reward functions."""
    monkeypatch.setattr(preflight, "check", unchecked)
    monkeypatch.chdir(tmp_path)
    config = project_config(tmp_path)
    assert not Path(config.rewards.functions[0]).is_absolute()
    config = config.model_copy(update={"runs_dir": str(tmp_path / "runs")})
    open_run(config)
    return config


async def test_it_finds_them_from_another_folder(config, monkeypatch):
    monkeypatch.chdir("/")
    async with open_session(open_run(config)) as session:
        await session.compute.call("reward", "start", key=KEY)


async def test_it_stops_at_edited_ones_until_they_are_accepted(config, tmp_path, monkeypatch):
    source = tmp_path / config.rewards.functions[0].partition(":")[0]
    source.write_text(source.read_text() + "# edited\n")
    monkeypatch.chdir("/")
    with pytest.raises(RewardError, match=rf"{source.name} was altered"):
        open_run(config)
    accepted = accept_changed_rewards(config)
    async with open_session(open_run(accepted)) as session:
        await session.compute.call("reward", "start", key=KEY)
    run = open_run(config)
    assert len(find_history(run.store)) == 2
    changed = [{"step": 0, "changes": [f"{source.name} was altered"]}]
    assert summarize(run).changed_rewards == changed
    checked = check_run(tmp_path / "runs", "run").files
    assert run.store.path(SOURCES_FILE) in [one.path for one in checked]
