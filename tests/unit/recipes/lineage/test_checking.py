"""`mortal verify` of a recipe, and of a run with ancestors."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from tests.support.made_recipe import GRPO, ROWS, SFT, made_run

RUNS = Path("runs")


def verify(name):
    answer = CliRunner().invoke(app, ["verify", name, "--json"])
    return answer.exit_code, [each["path"] for each in json.loads(answer.output)["damaged"]]


def test_a_whole_recipe_is_whole(letters):
    assert verify("letters") == (0, [])
    answer = CliRunner().invoke(app, ["verify", "letters"])
    assert "the chain of 3 stages is whole" in answer.output


@pytest.mark.parametrize("file", [f"{SFT}/final/model.safetensors", ROWS])
def test_an_altered_file_of_an_ancestor_is_found(letters, file):
    (RUNS / file).write_text("altered")
    code, damaged = verify("letters")
    assert code == 1
    assert {Path(path).name for path in damaged} == {Path(file).name}
    assert "will be made again" in CliRunner().invoke(app, ["verify", "letters"]).output
    assert (RUNS / file).resolve() in {Path(path).resolve() for path in verify(GRPO)[1]}


def test_an_exchanged_model_with_a_list_of_files_that_fits_is_found(letters):
    """Its run says that the model is well; the one that began with the old one does not."""
    other = made_run(RUNS, "other", model={"new": {}}).store.root
    shutil.rmtree(RUNS / SFT)
    shutil.copytree(other, RUNS / SFT)
    assert not any("final" in path for path in verify(SFT)[1])
    manifest = (RUNS / SFT / "final/manifest.json").resolve()
    assert manifest in map(Path, verify("letters")[1])
    told = CliRunner().invoke(app, ["verify", "letters"]).output
    assert f"not what {GRPO} took: cannot be recovered" in told
    assert manifest in map(Path, verify(GRPO)[1])


def test_a_model_that_a_run_without_a_recipe_began_with_is_checked(letters):
    made_run(RUNS, "more", model={"name_or_path": f"runs/{SFT}/final"})
    before = verify("more")[1]
    assert not any("final/model.safetensors" in path for path in before)
    (RUNS / SFT / "final/model.safetensors").write_text("altered")
    assert any("sft" in path and "model.safetensors" in path for path in verify("more")[1])


def test_a_model_is_checked_where_the_run_has_it_from_wherever_one_stands(
    letters, tmp_path, monkeypatch
):
    made_run(RUNS, "more", model={"name_or_path": f"runs/{SFT}/final"})
    (RUNS / SFT / "final/config.json").write_text("altered")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    answer = CliRunner().invoke(app, ["verify", "more", "--runs-dir", str(tmp_path / RUNS)])
    assert "config.json is not what more took" in answer.output


def test_a_run_without_a_recipe_needs_no_ancestor_that_is_gone(letters):
    parent = made_run(RUNS, "parent", model={"new": {}})
    made_run(RUNS, "fork", parent=parent, model={"name_or_path": f"runs/{SFT}/final"})
    before = verify("fork")
    shutil.rmtree(RUNS / SFT)
    shutil.rmtree(RUNS / "parent")
    assert verify("fork") == before


def test_an_ancestor_that_is_gone_is_damage(letters):
    shutil.rmtree(RUNS / SFT)
    code, damaged = verify("letters")
    assert code == 1
    assert any(SFT in path for path in damaged)
