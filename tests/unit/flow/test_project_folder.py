"""From a deployment's pull step to the flow: the folder that its runs belong to."""

import os
from pathlib import Path

import pytest

from mortal_flows.project_folder import enter_project_folder, use_project_folder
from mortal_steps.errors import ConfigError


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The working directory, as the worker made it; it and the environment are as before after."""
    folder = tmp_path / "made-by-the-worker"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return folder


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_the_flow_enters_the_folder_that_the_pull_step_named(elsewhere, project):
    use_project_folder(str(project))
    assert Path.cwd() == elsewhere, "Prefect takes the folder in which the pull steps end"
    enter_project_folder()
    assert Path.cwd() == project


def test_a_run_that_the_flow_starts_in_another_folder_stays_there(elsewhere, project):
    before = dict(os.environ)
    use_project_folder(str(project))
    enter_project_folder()
    os.chdir(elsewhere)
    enter_project_folder()
    assert Path.cwd() == elsewhere
    assert os.environ == before


@pytest.mark.parametrize("directory", ["project", ".", "/no/such/folder", __file__])
def test_a_folder_that_is_not_there_is_refused(elsewhere, project, directory):
    with pytest.raises(ConfigError, match=f"directory = '{directory}'.*`prefect deploy`"):
        use_project_folder(directory)
