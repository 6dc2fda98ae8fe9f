"""A run that trains by RLOO, whole, and the same run killed on the way."""

import json

import pytest

from tests.support.bare_flow import Killed, bare_in, go_on, project_config

REWARD = """
def early_letters(completions, **kwargs):
    return [sum(letter < "n" for letter in text) / 6 for text in completions]
"""
SETTINGS = {
    "rewards.functions": '["letters.py:early_letters"]',
    "algorithm.type": "rloo",
    "algorithm.normalize_advantages": "true",
    "training.beta": "0.01",
    "training.num_iterations": "2",
    "training.max_steps": "4",
    "evaluation.eval_steps": "4",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "letters.py").write_text(REWARD)
    with bare_in(folder):
        yield folder


def test_a_run_by_rloo_is_killed_and_ends_with_the_same_bits(project):
    config = project_config(project, **SETTINGS)
    whole = go_on(config)
    rows = [json.loads(line) for line in whole.store.path("metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert rows[0]["kl"] == 0 and all(row["kl"] for row in rows[1:]), "nothing was learned"

    killed = config.model_copy(update={"run_id": "killed"})
    with pytest.raises(Killed):
        go_on(killed, killed_after=2)
    assert go_on(killed).manifest.final == whole.manifest.final
