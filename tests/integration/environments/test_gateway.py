"""Agents that ask the model themselves, beside the same tools as GRPOTrainer calls them."""

from dataclasses import replace

import pytest

from mortal_steps.environments.kinds.agent import AgentEnvironment
from tests.support.environments.cases import Case, build
from tests.support.environments.mortal import run_mortal

AGENTS = "tests.support.environments.agents"


def asking(run, agent, **options):
    """Return the run with an agent in place of its environment."""
    environment = AgentEnvironment(agent=f"{AGENTS}:{agent}", **options)
    terms = [{"type": "get_reward", "environment": agent}]
    rewards = run.config.rewards.model_copy(update={"terms": ()})
    config = run.config.model_copy(
        update={
            "environment": environment,
            "rewards": type(rewards)(terms=terms),
        }
    )
    return replace(run, config=config)


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
