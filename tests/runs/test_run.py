"""Opening a run: what was settled when it began holds wherever it goes on."""

import pytest

from mortal_steps import settling
from mortal_steps.errors import StoreError
from mortal_steps.runs.run import open_run
from tests.bare_flow import project_config


def test_a_run_keeps_the_threads_and_shards_that_it_began_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = project_config(tmp_path)
    unset = config.model_dump()
    unset["compute"]["local"]["actor"]["threads"] = unset["rollout"]["num_shards"] = None
    unset["rollout"]["num_rollout_workers"] = 3
    config = type(config).model_validate(unset)
    monkeypatch.setattr(settling, "_cores", lambda: 3)
    begun = open_run(config)
    monkeypatch.setattr(settling, "_cores", lambda: 1)
    unset["rollout"]["num_rollout_workers"] = 1
    again = open_run(type(config).model_validate(unset))
    assert again.config.num_shards == begun.config.num_shards == 3
    threads = [each.config.compute.local.actor.threads for each in (begun, again)]
    assert threads == [3, 3]
    unset["compute"]["local"]["actor"]["threads"] = 1
    with pytest.raises(StoreError, match=r"compute.local.actor.threads was 3, now 1"):
        open_run(type(config).model_validate(unset))
