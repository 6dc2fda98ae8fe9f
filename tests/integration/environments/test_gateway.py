"""Agents that ask the model themselves, beside the same tools as GRPOTrainer calls them."""

import pytest

from tests.support.environments.cases import Case, asking, build
from tests.support.environments.mortal import run_mortal


@pytest.mark.parametrize("says", ["calls", "parallel", "wrong"])
def test_an_agent_gets_the_tokens_that_tools_get(tmp_path, says):
    run = build(Case(says=says, functions=(), budget=300), tmp_path / "model")
    ours = run_mortal(run, tmp_path / "tools")
    theirs = run_mortal(asking(run, "shopping"), tmp_path / "agent")
    for own, other in zip(ours.steps, theirs.steps, strict=True):
        assert own.prompt_ids == other.prompt_ids
        assert own.completion_ids == other.completion_ids
        assert own.masks == other.masks
        assert own.rewards["Shop"] == other.rewards["shopping"]
        assert own.prompts == other.prompts
        assert own.messages == other.messages
