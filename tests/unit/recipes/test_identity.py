"""What a configuration produces is known by what its files hold, not by where they lie."""

import json
import shutil
from pathlib import Path

import pytest

from mortal_steps.errors import DataError, ModelError
from mortal_steps.plan.loader import parse_config, write_key
from mortal_steps.plan.parts import Plan
from mortal_steps.recipes.identity import parts_of

REWARDS = "from words import LONG\n\ndef long(completions, **_):\n    return [LONG] * 2\n"
MARKS = "def mark(completions, **_):\n    return [0.0] * len(completions)\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with data, rewards, and models, in which the test works."""
    project = tmp_path / "project"
    for folder in ("model", "judge", "marker", "teacher"):
        path = project / "models" / folder
        path.mkdir(parents=True)
        path.joinpath("config.json").write_text("{}")
        path.joinpath("model.safetensors").write_text(folder)
    for name in ("rows", "held"):
        project.joinpath(f"{name}.jsonl").write_text(f'{{"prompt": "{name}"}}\n')
    table = project / "table"
    table.mkdir()
    table.joinpath("part.csv").write_text("prompt\na\n")
    tasks = project / "tasks"
    tasks.mkdir()
    tasks.joinpath("exam.yaml").write_text("task: exam\n")
    tasks.joinpath("exam.jsonl").write_text('{"question": "a"}\n')
    project.joinpath("marks.py").write_text(MARKS)
    project.joinpath("made.py").write_text("def rows(request):\n    yield {'prompt': 'a'}\n")
    project.joinpath("rewards.py").write_text(REWARDS)
    project.joinpath("words.py").write_text("LONG = 1.0\n")
    project.joinpath("README.md").write_text("of the project")
    monkeypatch.chdir(project)
    return project


def values_of_project():
    return {
        "model": {"name_or_path": "models/model"},
        "data": {"source": "rows.jsonl", "eval_sets": {"held": "held.jsonl", "t": "table"}},
        "rewards": {
            "terms": [
                {"type": "function", "function": "rewards.py:long"},
                {"type": "model", "name": "judge", "model": "models/judge"},
                {"type": "model", "name": "learned", "model": "stage:rm"},
            ]
        },
        "evaluation": {
            "functions": ["rewards.py:long", "./models/judge"],
            "sets": {
                "held": {"functions": ["marks.py:mark", "./models/marker"]},
                "exam": {"type": "lm_eval", "folder": "./tasks", "tasks": ["exam"]},
            },
        },
        "algorithm": {"type": "distillation", "teacher": "models/teacher"},
    }


def parts(changes=None):
    values = values_of_project()
    for key, value in (changes or {}).items():
        write_key(values, key, value)
    return json.dumps(parts_of(Plan(parse_config(values))), sort_keys=True)


def rename(old, new):
    return lambda: Path(old).rename(new)


def append(file, text="\n"):
    def change():
        with Path(file).open("a") as opened:
            opened.write(text)

    return change


def absolute(name):
    return str(Path(name).absolute())


def judged_by(model):
    return [*values_of_project()["rewards"]["terms"][:1], {**TERM, "model": model}, LEARNED]


_, TERM, LEARNED = values_of_project()["rewards"]["terms"]
SAME = {
    "nothing": (None, {}),
    "renamed data": (rename("rows.jsonl", "others.jsonl"), {"data.source": "others.jsonl"}),
    "data by its absolute path": (None, lambda: {"data.source": absolute("rows.jsonl")}),
    "a renamed folder of data": (rename("table", "chair"), {"data.eval_sets.t": "chair"}),
    "a hidden file in a folder of data": (append("table/.DS_Store"), {}),
    "a renamed model": (rename("models/model", "m"), {"model.name_or_path": "m"}),
    "a model by its absolute path": (
        None,
        lambda: {"model.name_or_path": absolute("models/model")},
    ),
    "a README in the model": (append("models/model/README.md"), {}),
    "a renamed reward model": (
        rename("models/judge", "models/other"),
        {
            "rewards.terms": judged_by("models/other"),
            "evaluation.functions": ["rewards.py:long", "./models/other"],
        },
    ),
    "a renamed teacher": (rename("models/teacher", "t"), {"algorithm.teacher": "t"}),
    "a renamed reward model of a set": (
        rename("models/marker", "models/other"),
        {"evaluation.sets.held.functions": ["marks.py:mark", "./models/other"]},
    ),
    "renamed code of a set": (
        rename("marks.py", "grades.py"),
        {"evaluation.sets.held.functions": ["grades.py:mark", "./models/marker"]},
    ),
    "a renamed folder of a harness": (
        rename("tasks", "exams"),
        {"evaluation.sets.exam.folder": "exams"},
    ),
    "code by its absolute path": (
        None,
        lambda: {"evaluation.functions": [f"{absolute('rewards.py')}:long", "./models/judge"]},
    ),
    "a file that nothing names": (append("README.md"), {}),
    "where it runs": (None, {"runs_dir": "elsewhere", "run_id": "a", "name": "b"}),
    "who keeps what": (None, {"checkpoints.save_steps": 3, "logging.group": "g"}),
    "a limit of time": (None, {"rewards.timeout_s": 5.0}),
    "a default that is written": (None, {"rollout.temperature": 1.0, "seed": 42}),
}
OTHER = {
    "a row more": (append("rows.jsonl", '{"prompt": "b"}\n'), {}),
    "a held-out row more": (append("held.jsonl", '{"prompt": "b"}\n'), {}),
    "a row more in a folder": (append("table/part.csv", "b\n"), {}),
    "data of another type": (rename("rows.jsonl", "rows.json"), {"data.source": "rows.json"}),
    "a set of another name": (None, {"data.eval_sets": {"held": "held.jsonl", "s": "table"}}),
    "fewer rows": (None, {"data.max_samples": 1}),
    "an edited reward": (append("rewards.py", "# edited\n"), {}),
    "an edited module of a reward": (append("words.py", "LONG = 2.0\n"), {}),
    "another function": (None, {"evaluation.functions": ["rewards.py:LONG"]}),
    "another model": (append("models/model/model.safetensors"), {}),
    "another tokenizer": (append("models/model/tokenizer.json"), {}),
    "another reward model": (append("models/judge/model.safetensors"), {}),
    "another teacher": (append("models/teacher/model.safetensors"), {}),
    "another reward model of a set": (append("models/marker/model.safetensors"), {}),
    "edited code of a set": (append("marks.py", "# edited\n"), {}),
    "another task of a harness": (append("tasks/exam.yaml", "num_fewshot: 1\n"), {}),
    "a row more of a task": (append("tasks/exam.jsonl", '{"question": "b"}\n'), {}),
    "another weight": (None, {"rewards.terms": [{**TERM, "weight": 0.5}, LEARNED]}),
    "a reward model of another stage": (
        None,
        {"rewards.terms": [TERM, {**LEARNED, "model": "stage:other"}]},
    ),
    "another seed": (None, {"seed": 1}),
    "a hotter model": (None, {"rollout.temperature": 0.5}),
    "another loss": (None, {"training.learning_rate": 1e-3}),
}


def parts_after(case):
    change, keys = case
    if change is not None:
        change()
    return parts(keys() if callable(keys) else keys)


@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_what_decides_nothing_changes_nothing(project, case):
    before = parts()
    assert parts_after(case) == before


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_what_decides_something_is_noticed(project, case):
    before = parts()
    assert parts_after(case) != before


def test_a_moved_project_is_the_same(project, monkeypatch, tmp_path):
    before = parts()
    shutil.copytree(project, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert parts() == before
    assert str(tmp_path) not in before


@pytest.mark.parametrize("written", ["made.py:rows", "made:rows"])
def test_the_code_that_makes_rows_is_known_by_its_files(project, written):
    before = parts({"data.source": written})
    assert parts({"data.source": written}) == before
    append("made.py", "# edited\n")()
    assert parts({"data.source": written}) != before


def test_tools_are_known_by_their_files(project):
    project.joinpath("tools.py").write_text('def add(a: int) -> int:\n    """Add."""\n')
    keys = {"environment.tools": ["tools.py:add"], "algorithm": {"type": "grpo"}}
    before = parts(keys)
    assert parts({**keys, "environment.tools": [f"{absolute('tools.py')}:add"]}) == before
    append("tools.py", "# edited\n")()
    assert parts(keys) != before


def taught_by(teacher):
    return parts({"algorithm": {"type": "opd", "teachers": {"big": teacher}}})


def test_teachers_by_name_are_known_by_what_they_hold(project):
    before = taught_by("models/teacher")
    assert taught_by({"name_or_path": absolute("models/teacher")}) == before
    rename("models/teacher", "teacher")()
    assert taught_by("teacher") == before
    append("teacher/model.safetensors")()
    assert taught_by("teacher") != before
    assert taught_by("stage:big") != taught_by("stage:bigger")


def test_a_teacher_on_the_hub_is_known_by_its_commit(project):
    first, second = (
        taught_by({"name_or_path": "org/big", "revision": each * 40}) for each in ("a", "b")
    )
    assert first != second and "a" * 40 in first


def test_files_of_a_harness_are_the_same_beside_an_environment(project):
    project.joinpath("tools.py").write_text('def add(a: int) -> int:\n    """Add."""\n')
    keys = {"environment.tools": ["tools.py:add"], "algorithm": {"type": "grpo"}}
    before = parts(keys)
    rename("tasks", "exams")()
    assert parts({**keys, "evaluation.sets.exam.folder": "exams"}) == before


def test_references_stay_as_they_are_written(project):
    keys = {"model.name_or_path": "stage:sft", "data.source": "stage:best"}
    found = json.loads(parts({"data.source": "stage:best"}))
    assert found["config"]["data"]["source"] == "stage:best"
    before = parts(keys)
    Path("stage.py").write_text("best = 1\n")  # of the same name as a reference begins with
    assert parts(keys) == before
    assert parts({**keys, "data.source": "stage:best/rest"}) != before


def test_what_is_missing_is_named(project):
    with pytest.raises(DataError, match=r"data\.source = 'row\.jsonl'.*did you mean.*rows\.jsonl"):
        parts({"data.source": "row.jsonl"})
    with pytest.raises(ModelError, match=r"model\.name_or_path: no such model folder: \./nowhere"):
        parts({"model.name_or_path": "./nowhere"})
    with pytest.raises(ModelError, match=r"algorithm\.teachers: .*big: no such model folder"):
        taught_by("./nowhere")
    with pytest.raises(ModelError, match=r"evaluation\.sets\.held: model: no such model folder"):
        parts({"evaluation.sets.held.functions": ["./nowhere"]})
    with pytest.raises(DataError, match=r"evaluation\.sets\.exam: no such file.*mean.*tasks"):
        parts({"evaluation.sets.exam.folder": "task"})
