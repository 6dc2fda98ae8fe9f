"""The examples of docs/extending.md, run as a user would run them."""

import subprocess
import sys
import tomllib

import pytest

from mortal_steps.config.loader import dump_toml, load_config, parse_config
from mortal_steps.orchestration import batches
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.docs_examples import settings, write_modules
from tests.support.project import write_project

PAGE = "extending.md"
STEPS = 3
SETTINGS = (f"training.max_steps={STEPS}", "evaluation.eval_steps=0", "rollout.num_shards=2")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's folder with every example in it."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    for heading in ("An engine", "A way of syncing weights", "A batch source"):
        write_modules(PAGE, heading, folder)
    return folder


def train(project, run_id, *headings):
    """Train by the script of the page with the settings below these headings; the run."""
    values = load_config(project / "tiny.toml", SETTINGS).model_dump()
    for heading in headings:
        values["rollout"] |= tomllib.loads(settings(PAGE, heading))["rollout"]
    (project / f"{run_id}.toml").write_text(dump_toml(parse_config(values)))
    (script,) = write_modules(PAGE, "The loop without Prefect", project)
    subprocess.run([sys.executable, script, f"{run_id}.toml", run_id], cwd=project, check=True)
    return find_run(project / "runs", run_id)


@pytest.fixture(scope="module")
def first(project):
    """Sampled by the page's engine, which takes its weights by the page's way of syncing."""
    return train(project, "first", "An engine", "A way of syncing weights")


def test_an_engine_and_a_way_of_syncing_of_a_users_own_train_a_model(first):
    assert first.manifest.status == "completed"
    assert first.config.rollout.engine == "plain_engine:PlainEngine"
    assert first.config.rollout.weight_sync == "local_copy:LocalCopy"
    assert [row["step"] for row in first.metrics()] == [1, 2, 3]
    assert any(row["grad_norm"] > 0 for row in first.metrics())


def test_a_run_that_is_fed_by_another_ends_with_its_bits(first, project):
    """The other one's engine is named too: the fed run's own workers start, and sample nothing."""
    fed = train(project, "fed", "An engine", "A batch source")
    assert fed.manifest.final.weights_sha256 == first.manifest.final.weights_sha256
    report = check_run(project / "runs", "fed")
    assert [file for file in report.files() if file.damage] == []
    for step in range(STEPS):
        again = batches.recorded(Session(fed, None), step)
        assert again.rewards == list(find_entry(fed.store, step).request.rewards)
