"""Two recipes of one name in one folder of runs."""

import shutil

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.recipes.file import read_recipe
from mortal_steps.recipes.same_name import check_name, note_file

TEXT = 'name = "words"\nruns_dir = "runs"\n[stages.a]\ntype = "function"\ncall = "a.py:a"\n'
OTHER = TEXT.replace("a.py:a", "b.py:b")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A project in which words.toml was begun."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    begun(folder / "words.toml", TEXT)
    return folder


def begun(file, text=None):
    """Begin a recipe, as far as its name goes."""
    if text is not None:
        file.write_text(text)
    note_file(read_recipe(file), file)


def test_another_recipe_of_the_name_is_refused_and_both_are_named(project):
    other = project / "other.toml"
    with pytest.raises(ConfigError) as refused:
        begun(other, OTHER)
    said = str(refused.value)
    assert str(other) in said and str(project / "words.toml") in said
    assert "give this one another name or runs_dir" in said
    begun(project / "words.toml")  # as before
    (project / "words.toml").unlink()
    begun(other)  # takes its place, and is the one from now on
    with pytest.raises(ConfigError, match=r"other\.toml"):
        begun(project / "words.toml", TEXT)


def test_files_of_one_name_in_folders_of_a_project_are_told_apart(project):
    nameless = TEXT.partition("\n")[2]
    for folder, text in (("a", nameless), ("b", nameless + "cache = false\n")):
        (project / folder).mkdir()
        (project / folder / "train.toml").write_text(text)
    begun(project / "a" / "train.toml")
    with pytest.raises(ConfigError, match=r"a/train\.toml"):
        begun(project / "b" / "train.toml")


def test_a_name_on_the_command_line_counts(project):
    file = project / "other.toml"
    file.write_text(OTHER)
    check_name(read_recipe(file, ["name=mine"]), file)
    file.write_text(OTHER.replace('"words"', '"mine"'))
    check_name(read_recipe(file), file)
    with pytest.raises(ConfigError):
        check_name(read_recipe(file, ["name=words"]), file)


def test_what_was_edited_renamed_moved_or_copied_is_the_same_recipe(project, tmp_path, monkeypatch):
    begun(project / "words.toml", OTHER)  # edited
    (project / "words.toml").rename(project / "renamed.toml")
    begun(project / "renamed.toml", TEXT)  # edited as well
    shutil.copy(project / "renamed.toml", project / "copied.toml")
    begun(project / "copied.toml")
    (project / "copied.toml").unlink()
    begun(project / "renamed.toml")
    copied = tmp_path / "copied"
    shutil.copytree(project, copied)
    monkeypatch.chdir(copied)
    begun(copied / "renamed.toml", OTHER)  # the project's copy goes its own way
    with pytest.raises(ConfigError, match=r"copied/renamed\.toml"):
        begun(copied / "words.toml", TEXT)


def test_a_file_that_is_another_recipe_by_now_is_no_obstacle(project):
    (project / "words.toml").write_text(TEXT.replace('"words"', '"letters"'))
    begun(project / "new.toml", OTHER)
    (project / "new.toml").write_text("[stages")  # nor is one that cannot be read
    begun(project / "newest.toml", TEXT)
