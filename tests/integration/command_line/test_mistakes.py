"""What is typed wrong is answered with the way to write it, before anything begins."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from mortal.terminal.output import complain
from mortal_steps.runs.argument import run_argument
from tests.support.begun_runs import make_run
from tests.support.project import write_project


def plain(errors):
    """An error in typer's frame as one line."""
    return " ".join(errors.translate(str.maketrans("", "", "╭╮╰╯│─")).split())


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("MORTAL_RUNS_DIR", raising=False)
    return write_project(tmp_path).name


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["training.max_steps=9"], "write --set training.max_steps=9"),
        (["seed=1", "x=[2]"], "write --set seed=1 --set x=[2]"),
        (["more"], "train [OPTIONS] [CONFIG]"),
        (["--seed", "3"], "No such option: --seed; write --set seed=VALUE"),
        (
            ["--temperature", "1"],
            "write --set rollout.temperature=VALUE or --set evaluation.temperature=VALUE",
        ),
        (["--training.max_steps=3"], "write --set training.max_steps=VALUE"),
        (["--max_steps", "3"], "No such option: --max_steps (Possible options: --max-steps"),
        (["--max-steps", "1.5"], "Invalid value for '--max-steps'"),
        (["--lr", "1e-5"], "No such option: --lr (Possible options: --learning-rate)"),
    ],
)
def test_words_that_no_command_takes_are_written_otherwise(mortal, project, words, answer):
    code, output, errors = mortal("train", project, *words)
    assert (code, output) == (2, "")
    assert answer in plain(errors)


def test_a_word_too_many_is_told_how_the_command_is_written(mortal):
    code, _, errors = mortal("show", "one", "two=3")
    assert code == 2 and "Unexpected two=3; the command is written: " in plain(errors)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--max-steps", "0"], "training.max_steps = 0: must be at least 1, or -1"),
        (["--set", "training.max_steps=five"], "training.max_steps = 'five': must be a whole"),
        (["--loss-type", "no"], "training.loss_type = 'no': must be 'grpo', 'dapo'"),
        (["--set", "model=3"], "model = 3: must be a table of keys"),
        (["--set", "name=a b"], "name = 'a b': must consist of letters, digits, '.'"),
        (["--reward", "a.py:f,b.py:g"], "holds several rewards; write them one by one"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(mortal, project, words, answer):
    code, _, errors = mortal("train", project, *words)
    assert code == 1
    assert errors.startswith(f"error: {project} and the command line:\n") and answer in errors


def test_a_file_that_is_no_configuration_is_named(mortal, project):
    assert "an override is written --set seed=3" in mortal("train", "seed=3")[2]
    Path("latin.toml").write_bytes(b"name = 'caf\xe9'")
    assert "byte 11 is not UTF-8" in mortal("train", "latin.toml")[2]
    assert (
        "no section 'trainning' and no key of that name; did you mean training?"
        in mortal("options", "trainning")[2]
    )


def test_help_says_every_word_of_a_docstring(mortal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = mortal("list-checkpoints", "--help")[1]
    assert "as its section [checkpoints] says" in " ".join(output.split())
    assert "<bool>" not in output and "list-checkpoints [OPTIONS] [RUN]" in output
    assert "resume [OPTIONS] RUN" in mortal("resume", "--help")[1]
    assert "compare [OPTIONS] RUN..." in mortal("compare", "--help")[1]


def test_who_asks_for_help_in_the_place_of_a_value_gets_it(mortal):
    for asked in ("--help", "-h"):
        code, output, errors = mortal("train", "--algorithm", asked)
        assert (code, errors) == (0, "") and "train [OPTIONS] [CONFIG]" in output
    code, _, errors = mortal("serve", "nowhere", "--", "--help")
    assert code == 1 and "no run 'nowhere'" in errors, "a word for vLLM's server"


def test_a_run_is_protected_also_if_its_folder_is_named(mortal, tmp_path, monkeypatch):
    runs, gone = tmp_path / "runs", ("--older-than", "1e-9", "--delete")
    monkeypatch.chdir(tmp_path)
    for named in (runs / "keep", "runs/keep", "runs/keep/", "./runs/keep"):
        make_run(runs, "keep")
        told = mortal("gc", "--runs-dir", runs, *gone, "--protect", named)
        assert told[0] == 0 and "stays: keep: it is protected" in told[1]
        assert (runs / "keep").is_dir()
    make_run(tmp_path / "others", "keep")
    for named in ("others/keep", "keep/"):
        code, _, errors = mortal("gc", "--runs-dir", runs, *gone, "--protect", named)
        assert code == 1 and f"--protect {named}: there is no such run in {runs}" in errors


def test_the_id_of_a_demo_is_the_one_that_is_set(mortal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", "one")
    code, _, errors = mortal("demo", "d", "--set", "run_id=one")
    assert code == 1 and "run one " in errors


def test_a_run_to_protect_that_is_not_there_removes_nothing(mortal, tmp_path):
    make_run(tmp_path, "keep")
    told = ("gc", "--runs-dir", tmp_path, "--older-than", "1e-9", "--delete", "--protect")
    for named, shown in (("kepe", "kepe"), ("", "'' (an empty variable"), ("..", "..")):
        code, _, errors = mortal(*told, named)
        assert code == 1 and f"--protect {shown}" in errors and "there is no such run" in errors
    assert (tmp_path / "keep").is_dir()


def test_no_model_is_removed_in_place_of_one_without_a_name(mortal):
    code, _, errors = mortal("clear-cache", "--model", "", "--yes")
    assert code == 1 and "--model '': name a model of the hub, or leave the option out" in errors


def test_train_puts_runs_where_the_other_commands_look(mortal, project, monkeypatch):
    Path("afile").touch()
    monkeypatch.setenv("MORTAL_RUNS_DIR", "afile")
    assert "runs_dir afile is not writable" in mortal("train", project)[2]


def test_grade_looks_for_runs_where_the_other_commands_do(mortal, project, monkeypatch):
    for words in (["--runs-dir", "there"], ["--set", "runs_dir=there"]):
        assert "no run 'one' in there" in mortal("grade", project, "--run", "one", *words)[2]
    monkeypatch.setenv("MORTAL_RUNS_DIR", "there")
    assert "no run 'one' in there" in mortal("grade", project, "--run", "one")[2]


def test_what_is_written_beats_the_environment_and_is_written_once(mortal, project, monkeypatch):
    Path("afile").touch()
    monkeypatch.setenv("MORTAL_RUNS_DIR", "elsewhere")
    told = mortal("train", project, "--set", "runs_dir=afile")[2]
    assert "runs_dir afile is not writable" in told
    assert "runs_dir afile is not writable" in mortal("demo", "d", "--set", "runs_dir=afile")[2]
    for key, option in (("runs_dir", "--runs-dir"), ("run_id", "--run-id")):
        told = mortal("train", project, option, "one", "--set", f"{key}=other")[2]
        assert f"{option} one and --set {key}=other both set {key}; leave one of them out" in told
    monkeypatch.delenv("MORTAL_RUNS_DIR")
    told = mortal("train", project, "--runs-dir", ".", "--set", "runs_dir=there")[2]
    assert "--runs-dir . and --set runs_dir=there both set runs_dir" in told, "the default, written"
    told = mortal("train", project, "--runs-dir", "./afile", "--set", "runs_dir=afile")[2]
    assert "runs_dir afile is not writable" in told, "both say the same"
    told = mortal("train", project, "--run-id", "5", "--set", "run_id=5", "--runs-dir", "afile")[2]
    assert "both set run_id" not in told


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(mortal, project):
    for words in (["grade", project], ["compare", "one", "two"]):
        for file in (".", f"{project}/x"):
            code, _, errors = mortal(*words, "-o", file)
            assert (code, errors.startswith(f"error: --output {file} ")) == (1, True), errors
            assert "name a file in a folder that you may write to" in errors


def test_grades_do_not_take_the_place_of_the_dataset_that_they_are_a_part_of(mortal, project):
    Path("link").symlink_to("train.jsonl")
    before = Path("train.jsonl").read_bytes()
    for file in ("train.jsonl", "link"):
        errors = mortal("grade", project, "-o", file)[2]
        assert f"--output {file} is the dataset itself" in errors
    assert Path("train.jsonl").read_bytes() == before


def test_grades_do_not_become_rows_of_the_dataset(mortal, project):
    Path("rows").mkdir()
    Path("train.jsonl").rename("rows/train.jsonl")
    told = mortal("grade", project, "--set", "data.source=rows", "-o", "rows/graded.jsonl")[2]
    assert "--output rows/graded.jsonl lies in rows, which is the dataset" in told


def test_a_run_is_named_as_a_command_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MORTAL_RUNS_DIR", raising=False)
    assert run_argument(tmp_path / "runs" / "one") == "one"
    assert run_argument(tmp_path / "my runs" / "one") == f"one --runs-dir '{tmp_path}/my runs'"
    monkeypatch.setenv("MORTAL_RUNS_DIR", "my runs")
    assert run_argument(tmp_path / "my runs" / "one") == "one"


def test_an_error_has_no_colour_where_none_is_wanted(capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for wanted, told in (("", "\x1b[31merror: x\x1b[0m\n"), ("1", "error: x\n")):
        monkeypatch.setenv("NO_COLOR", wanted)
        monkeypatch.setattr(sys, "stderr", Terminal())
        complain("x")
        assert sys.stderr.getvalue() == told


def test_a_terminal_without_box_characters_shows_the_rest(tmp_path):
    metrics = "".join(f'{{"step": {step}, "reward": 0.5}}\n' for step in range(1, 9))
    store = make_run(tmp_path, "one")
    (store.root / "metrics.jsonl").write_text(metrics)
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "mortal", "show", "one", "--runs-dir", tmp_path],
        env={"PYTHONIOENCODING": "ascii", "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "files        " in shown.stdout


def test_a_file_beside_the_configuration_is_pointed_at(mortal, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    write_project(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    code, _, errors = mortal("test-reward", "elsewhere/tiny.toml")
    assert code == 1 and "data.source = 'train.jsonl': no such file" in errors
    assert "It is beside tiny.toml: run the command in elsewhere, or write /" in errors
