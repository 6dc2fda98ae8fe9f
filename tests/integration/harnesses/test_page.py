"""The harness of docs/evaluation.md, as it stands there."""

import tomllib

from mortal_steps.types import HarnessAnswer
from tests.support.docs_examples import settings, write_modules
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

HEADING = "A harness of your own"


def test_the_pages_harness_evaluates_a_run(tmp_path):
    write_project(tmp_path)
    write_modules("evaluation.md", HEADING, tmp_path)
    evaluation = tomllib.loads(settings("evaluation.md", HEADING))["evaluation"]
    (name, table), *_ = evaluation["sets"].items()
    keys = [f"evaluation.sets.{name}.{key}={value}" for key, value in table.items()]
    keys += [f"evaluation.decides={evaluation['decides']}", "data.eval_samples=0"]
    run = undisturbed(tmp_path, [*keys, "training.max_steps=1"], "capitals")
    path = f"evaluations/000001/harness-{name}.json"
    _, found = run.store.find_record(path, HarnessAnswer)
    assert found.scores == {each: {"reward": 0.0} for each in ("France", "Japan", "Kenya")}
    assert found.num_tokens <= 3 * 8
    first, last = run.logs.read("evaluations.jsonl")
    assert first["reward"] == last["reward"] == last["eval_capitals_reward"] == 0.0
