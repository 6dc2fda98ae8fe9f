"""Before a run begins, prompts are measured with the tools that they offer."""

import pytest
from transformers import AutoTokenizer

from mortal_steps.environments.chat import Chat
from mortal_steps.errors import DataError
from mortal_steps.orchestration.checking.preflight import check_training
from mortal_steps.orchestration.trials.environment_trial import check_resets
from mortal_steps.orchestration.trials.opening import passing_workers
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.chat_settings import chat_of
from mortal_steps.policy.starting_model.prompt_lengths import keep_fitting
from tests.support.environments.cases import TABLE, Case, build
from tests.support.paths import ROOT


def test_prompts_have_to_fit_with_the_tools_of_their_environments(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    run = build(Case(factory=TABLE), tmp_path / "model")
    config, train = run.config, run.batch(0)
    tools = check_resets(Plan(config).environment, train)
    chat = Chat(AutoTokenizer.from_pretrained(run.model_path), chat_of(config.model, {}), {})
    lengths = {
        row.columns["environment"]: len(
            chat.prompt_ids(row.prompt, tools[row.columns["environment"]])
        )
        for row in train
    }
    assert len(set(lengths.values())) == len(TABLE)
    room = config.model.max_model_len - max(lengths.values())
    actor = passing_workers(Plan(config).workers)["actor"]
    measured = check_training(actor, train, [], [], room, tools)
    found, _ = keep_fitting(config.data, train, [], measured)
    assert (list(found), measured.longest) == (train, max(lengths.values()))
    with pytest.raises(DataError, match=r"1 of 2 prompts are too long .*rollout\.max_tokens"):
        keep_fitting(config.data, train, [], check_training(actor, train, [], [], room + 1, tools))
