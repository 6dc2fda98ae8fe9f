"""Reward models of this machine's folders, scoring in containers of Modal's."""

import asyncio
import contextlib
import shutil

import pytest

from mortal_steps.errors import RewardError
from mortal_steps.orchestration.open_run import open_run, resume_config
from mortal_steps.places.modal.detached import fetch_reward_models, hand_over
from mortal_steps.plan.parts import Plan
from mortal_steps.rewards.kinds.model import ModelTerm
from mortal_steps.rewards.reward_model import RewardModel
from tests.support import bare_flow
from tests.support.modal.project import ON_MODAL, SHORT, project
from tests.support.modal.scored import scored
from tests.support.rewards.reward_models import build_reward_model

COMPLETIONS = ("ba", "b", "fedcba", "")


def judged_by(folder, run_id, *settings):
    """A run whose rewards are two models: one named from the folder, one from the root."""
    terms = [
        f"{{type='model', model='{model}', name='{name}', batch_size=1}}"
        for name, model in (("near", "./models/near"), ("far", folder / "models/far"))
    ]
    return project(
        folder,
        run_id,
        *(*ON_MODAL, *SHORT, *settings, "rewards.dry_run=false", "rewards.functions=[]"),
        f"rewards.terms=[{', '.join(terms)}]",
    )


def scores_of(folder):
    model = RewardModel(ModelTerm(model=str(folder), batch_size=1))
    return model(prompts=["ab="] * len(COMPLETIONS), completions=list(COMPLETIONS))


def test_the_folders_reach_a_container_and_are_needed_here_no_more(plane, tmp_path):
    with bare_flow.bare_in(tmp_path):
        folders = [build_reward_model(tmp_path / "models" / name) for name in ("near", "far")]
        expected = dict(zip(("near", "far"), map(scores_of, folders), strict=True))
        run = open_run(judged_by(tmp_path, "judged", "compute.modal.rewards=modal"))
        for step in range(2):
            rewarded, _ = asyncio.run(scored(run, COMPLETIONS, step=step))
            (scores,) = rewarded.rewards
            assert {name: [row[name] for row in scores] for name in expected} == expected
            shutil.rmtree(tmp_path / "models", ignore_errors=True)
            run = open_run(resume_config(tmp_path / "runs", "judged"))


def test_they_reach_a_container_that_drives_the_run(plane, tmp_path):
    began, there = tmp_path / "began", tmp_path / "there"
    began.mkdir()
    with bare_flow.bare_in(began):
        folders = [build_reward_model(began / "models" / name) for name in ("near", "far")]
        config = judged_by(began, "handed-over")
        run = open_run(config)
        asyncio.run(hand_over(run))
        weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
        shutil.rmtree(began / "models")
        with pytest.raises(RewardError, match=r"models/near/config\.json is not used any more"):
            open_run(config)
    there.mkdir()
    with contextlib.chdir(there):
        asyncio.run(fetch_reward_models(Plan(config).code, there / "runs" / "handed-over"))
        folders[0] = there / "models/near"
        assert [(folder / "model.safetensors").read_bytes() for folder in folders] == weights
