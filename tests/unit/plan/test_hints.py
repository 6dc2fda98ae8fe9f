"""What a configuration file that cannot be used says of how to write it."""

import tomllib
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.plan.hints import beside
from mortal_steps.plan.loader import load_config, parse_config
from mortal_steps.plan.reference import reference_toml
from tests.support.refused import refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said_of(text: str, path: str = "own.toml") -> str:
    Path(path).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(Path(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("name_or_path = ./tiny", '; text needs quotes: name_or_path = "./tiny"'),
        ("engine = vllm  # fast", '; text needs quotes: engine = "vllm"'),
        ("max_steps = 5 6", ": max_steps = 5 6"),
    ],
)
def test_a_line_that_is_no_toml_is_shown(line: str, hint: str) -> None:
    said = said_of(f"[model]\n{line}\n")
    assert "(at line 2, column" in said and said.endswith(hint)


def test_a_text_in_the_place_of_a_list_is_shown_as_the_list() -> None:
    assert "rewards.weights = '1, 0.2': write a list: [1, 0.2]" in said_of(
        "[rewards]\nweights = '1, 0.2'"
    )
    written = 'data.drop_columns = \'a, b\': write a list: ["a", "b"]'
    assert written in said_of("[data]\ndrop_columns = 'a, b'")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_steps": "5"}, ["training.max_steps = '5'", "number", "quotes"]),
        ({"learning_rate": "1e-6"}, ["training.learning_rate = '1e-6'", "number", "quotes"]),
        ({"num_generations": True}, ["training.num_generations = True", "number"]),
        ({"beta": False}, ["training.beta = False", "number"]),
    ],
)
def test_numbers_are_numbers(values: dict[str, object], said: list[str]) -> None:
    with refused(ConfigError, *said):
        parse_config({"training": values})
    with refused(ConfigError, "rewards.weights", "number"):
        parse_config({"rewards": {"functions": ["a.py:f"], "weights": [*values.values()]}})


def test_mistakes_are_told_together() -> None:
    said = said_of("[training]\nmax_steps = true\nbatch_siz = 2\n[rollout]\nstaleness = '1'\n")
    assert len(said.splitlines()) == 4 and "did you mean training.batch_size?" in said
    said = said_of("[training.trl]\nbta = 1\nreward_funcs = 2\n")
    assert [line.strip().partition(" ")[0] for line in said.splitlines()] == [
        "training.trl.bta:",
        "training.trl.reward_funcs",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[data]\nsource = 'x.jsonl'", "data.source = 'x.jsonl'"),
        ("[data]\neval_sets = {a = './x.jsonl'}", "data.eval_sets.a = './x.jsonl'"),
        ("[rewards]\nfunctions = ['r.py:f']", "rewards.functions = 'r.py:f'"),
        ("[model]\nname_or_path = 'tiny'", "model.name_or_path = 'tiny'"),
    ],
)
def test_a_file_beside_the_configuration_and_not_here_is_told(
    folder: Path, text: str, named: str
) -> None:
    elsewhere = folder / "elsewhere"
    (elsewhere / "tiny").mkdir(parents=True)
    for name in ("x.jsonl", "r.py"):
        (elsewhere / name).touch()
    path, values = Path("elsewhere/own.toml"), tomllib.loads(text)
    said = beside(path, values)
    assert said is not None and said.startswith(f"{named}: no such file or folder in {folder}")
    assert "It is beside own.toml: run the command in elsewhere, or write /" in said
    for name in ("x.jsonl", "r.py"):
        (folder / name).touch()
    (folder / "tiny").mkdir()
    assert beside(path, values) is None


def test_options_are_found_by_name() -> None:
    assert reference_toml("training.learning_rate").splitlines()[-1] == "learning_rate = 5e-06"
    both = reference_toml("learning_rate")
    assert "[training]" in both and "# [model.warm_start]" in both
    assert "max_steps" not in both
    some = reference_toml("Eval")
    assert "eval_samples = 0" in some and "on_start" in some and "prompt_column" not in some
    with refused(ConfigError, "training.max_steps"):
        reference_toml("max_setps")
    with refused(ConfigError, "'trainning'", "mean training?"):
        reference_toml("trainning")
