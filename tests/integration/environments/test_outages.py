"""One call of a tool in five has an outage, in a run of whole workers: none is told to the model,
no episode is scored 0 for it, and the others have the same bits."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.types import GeneratedShard, RewardedShard
from tests.support.environments.cases import Case, build
from tests.support.environments.mortal import Workers

CASE = Case(
    factory="Remote",
    says="adds",
    budget=600,
    num_steps=1,
    training={"batch_size": 4},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return build(CASE, tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def take(run, tmp_path, monkeypatch):
    """Return a function that takes a step, and returns its completions, scores and metrics."""
    (tmp_path / "asked").touch()
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))

    def take(outage, **options):
        monkeypatch.setenv("OUTAGE", outage)
        table = EnvironmentConfig(factory=run.config.environment.factory, **options)
        config = run.config.model_copy(update={"environment": table})
        workers = Workers(replace(run, config=config), tmp_path / f"run-{outage}")
        try:
            generated = workers.sample(0)
            rewarded = workers.score(generated)
            shard = workers.store.read_record(generated.file, GeneratedShard)
            scored = workers.store.read_record(rewarded.file, RewardedShard)
            metrics = workers.train(rewarded).metrics
        finally:
            workers.close()
        rows = [
            (completion, earned)
            for group, rewards in zip(shard.groups, scored.rewards, strict=True)
            for completion, earned in zip(group.completions, rewards, strict=True)
        ]
        return rows, metrics

    return take


@pytest.fixture
def num_asked(tmp_path):
    return lambda: len((tmp_path / "asked").read_text().split())


def test_an_outage_that_passes_changes_no_bit(take, num_asked):
    undisturbed = take("")
    assert num_asked() == 0
    assert take("once") == undisturbed
    assert num_asked() >= 5
    assert max(completion.episode.num_calls for completion, _ in undisturbed[0]) >= 3


def test_an_outage_that_lasts_costs_its_episodes_and_changes_no_other(take, num_asked):
    undisturbed, _ = take("")
    masked, metrics = take("always", on_error="mask", retries=1, timeout_s=5.0)
    failed = [completion.episode.failure is not None for completion, _ in masked]
    assert 0 < sum(failed) < len(failed)
    assert num_asked() == 3 * sum(failed)  # after 1 and 2 s; 4 more are too late
    for has_failed, before, (completion, earned) in zip(failed, undisturbed, masked, strict=True):
        if has_failed:
            assert set(earned.values()) == {None}
            for part in ("tool add", "ConnectionError", "the server is away"):
                assert part in completion.episode.failure
            assert "away" not in completion.text
        else:
            assert (completion, earned) == before
    assert math.isfinite(metrics["loss"])


def test_an_outage_that_lasts_stops_the_run_by_default(take):
    with pytest.raises(EnvironmentFailedError) as raised:
        take("always", retries=0)
    for part in ("problem train-", "generation ", "tool add", "away", "environment.outages"):
        assert part in str(raised.value)


def test_a_shard_that_fails_leaves_no_file_of_the_run_open(run, tmp_path, monkeypatch):
    (tmp_path / "asked").touch()
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("OUTAGE", "always")
    table = EnvironmentConfig(factory=run.config.environment.factory, retries=0)
    config = run.config.model_copy(update={"environment": table})
    workers = Workers(replace(run, config=config), tmp_path / "run")
    try:
        with pytest.raises(EnvironmentFailedError):
            workers.sample(0)
        opened = [os.readlink(f"/proc/self/fd/{each.name}") for each in descriptors()]
        assert not [path for path in opened if path.startswith(str(tmp_path / "run"))]
    finally:
        workers.close()


def descriptors():
    return [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
