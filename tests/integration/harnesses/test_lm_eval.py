"""Real tasks of a real lm-evaluation-harness (`make lm-eval`), by the endpoint of a run."""

import importlib.util
import json
import tomllib

import pytest

from mortal_steps.config import EvaluationConfig
from mortal_steps.errors import HarnessError
from mortal_steps.harnesses.handler import HarnessHandler
from mortal_steps.report.held_out import HeldOutScores
from mortal_steps.types import GeneratedShard, HarnessAnswer
from tests.support.docs_examples import examples
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

SETTINGS = (
    "training.max_steps=1",
    "data.eval_samples=0",
    "data.eval_sets.letters=letters.jsonl",
    "rollout.num_shards=1",
)
LETTERS = "abcde"


@pytest.fixture(scope="module", autouse=True)
def installed():
    if importlib.util.find_spec("lm_eval") is None:
        pytest.skip("lm-evaluation-harness is not installed; `make lm-eval` installs it")


@pytest.fixture(scope="module")
def page():
    """The settings of the page, and its task."""
    blocks = examples("evaluation.md", "Tasks of lm-evaluation-harness")
    return dict(blocks)


@pytest.fixture(scope="module")
def project(tmp_path_factory, page):
    folder = tmp_path_factory.mktemp("lm-eval")
    write_project(folder)
    rows = [json.dumps({"prompt": f"{letter} = ", "answer": letter}) for letter in LETTERS]
    (folder / "letters.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "benchmarks").mkdir()
    task = page["yaml"].replace("max_gen_toks: 8", "max_gen_toks: 6")
    (folder / "benchmarks" / "sums.yaml").write_text(task)
    choice = task.replace("generate_until", "multiple_choice").replace("task: sums", "task: chosen")
    (folder / "benchmarks" / "chosen.yaml").write_text(f'{choice}doc_to_choice: ["a", "b"]\n')
    return folder


@pytest.fixture(scope="module")
def said(project):
    """What the untrained model says to each letter: of the run that has no harness."""
    run = undisturbed(project, SETTINGS, "plain")
    _, shard = run.store.find_record("evaluations/000000/generations-0.parquet", GeneratedShard)
    return [group.completions[0].text for group in shard.groups]


@pytest.fixture(scope="module")
def run(project, said, page):
    right = dict(zip(LETTERS, said, strict=True)) | {"b": "wrong", "e": "wrong"}
    rows = [json.dumps({"question": letter, "answer": right[letter]}) for letter in LETTERS]
    (project / "benchmarks" / "sums.jsonl").write_text("\n".join(rows) + "\n")
    (name, table), *_ = tomllib.loads(page["toml"])["evaluation"]["sets"].items()
    keys = [f"evaluation.sets.{name}.{key}={json.dumps(value)}" for key, value in table.items()]
    return undisturbed(project, [*SETTINGS, *keys, "evaluation.decides=sums"], "sums")


def test_each_document_is_scored_as_what_the_model_says_there(run):
    _, found = run.store.find_record("evaluations/000000/harness-sums.json", HarnessAnswer)
    scores = {problem: its["exact_match"] for problem, its in found.scores.items()}
    assert scores == {f"sums/{n:06d}": float(n not in (1, 4)) for n in range(5)}
    assert found.num_completions == 5
    first, _ = run.logs.read("evaluations.jsonl")
    assert first["reward"] == first["eval_sums_rewards/exact_match/mean"] == pytest.approx(0.6)
    assert HeldOutScores(run).intervals(0)["reward"].method == "wilson"
    assert HeldOutScores(run).gain([0, 1]).paired.num_problems == 5


def test_asked_again_it_answers_the_same(run, project):
    path = run.store.path("evaluations/000001/harness-sums.json")
    before = path.read_bytes()
    keys = ['type="lm_eval"', 'folder="benchmarks"', 'tasks=["sums"]', 'metric="exact_match"']
    keys = [f"evaluation.sets.sums.{key}" for key in keys]
    again = undisturbed(project, [*SETTINGS, *keys, "evaluation.decides=sums"], "again")
    assert again.store.path("evaluations/000001/harness-sums.json").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tasks": ["sums"]}, None),
        ({"tasks": ["chosen"]}, "output_type = 'multiple_choice'"),
        ({"tasks": ["sum"]}, "'sum' is no task in benchmarks (there are: chosen, sums)"),
        ({"folder": "nowhere", "tasks": ["sums"]}, "no such folder"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_a_run(
    project, run, monkeypatch, settings, says
):
    monkeypatch.chdir(project)
    table = {"type": "lm_eval", "folder": "benchmarks", **settings}
    (harness,) = EvaluationConfig(sets={"x": table}).harnesses.values()
    handler = HarnessHandler(name="x", harness=harness)
    if says is None:
        return handler.check()
    with pytest.raises(HarnessError) as error:
        handler.check()
    assert says in str(error.value)
    return None
