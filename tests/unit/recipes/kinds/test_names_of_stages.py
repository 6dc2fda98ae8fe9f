"""Reward models of other stages are called as these, and not as the folder of a final model."""

import pytest

from mortal_steps.recipes.kinds.train import TrainStage
from mortal_steps.scores import reward_names
from tests.support.recipes import job_of

MODEL = {"type": "model", "model": "stage:rm"}
EXACT = {"type": "exact"}


@pytest.mark.parametrize(
    ("rewards", "names"),
    [
        ({"terms": [MODEL, EXACT]}, ["rm", "exact"]),
        ({"terms": [{**MODEL, "name": "judge"}, EXACT]}, ["judge", "exact"]),
        ({"terms": [MODEL, {**EXACT, "name": "rm"}]}, ["final", "rm"]),
        ({"functions": ["stage:rm", "own.py:right"], "weights": [0.5, 2.0]}, ["rm", "right"]),
        ({"functions": ["own.py:right"]}, ["right"]),
    ],
)
def test_a_reward_model_of_a_stage_is_called_as_the_stage(rewards, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    final = tmp_path / "runs" / "rm" / "final"
    final.mkdir(parents=True)
    (final / "config.json").write_text("{}")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    (tmp_path / "own.py").write_text("def right(completions, **_): ...\n")
    values = {"model": {"new": {}}, "data": {"source": "rows.jsonl"}, "rewards": rewards}
    stage = TrainStage("grpo", values, "letters")
    given = stage.config(job_of(stage, rm="rm/final")).rewards
    assert list(reward_names(given)) == names
    weights = rewards.get("weights", [1.0] * len(names))
    assert [term.weight for term in given.all_terms] == weights
