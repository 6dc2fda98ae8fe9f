"""What runs are killed with is a configuration: each variant's settings are those of a run."""

import pytest

from mortal_steps.plan.loader import load_config
from tests.support.chaos.agents import write_agents
from tests.support.chaos.project import AGENTS, ROWS, SELECTIONS, VARIANTS, write_project
from tests.support.chaos.rows import write_rows


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    def written(name):
        folder = tmp_path_factory.mktemp(name)
        if name in AGENTS:
            write_agents(folder, name, "http://127.0.0.1:9")
        elif name in ROWS:
            write_rows(folder, name)
        else:
            write_project(folder)
        return folder / "chaos.toml"

    return written


@pytest.mark.parametrize("kind", [VARIANTS, AGENTS, ROWS, SELECTIONS])
def test_the_settings_of_each_variant_are_known(project, monkeypatch, kind):
    for name, settings in kind.items():
        path = project(name)
        monkeypatch.chdir(path.parent)
        load_config(path, settings)
