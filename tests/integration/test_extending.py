"""The examples of docs/extending.md, run as a user would run them."""

import signal

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.batch_sources import batches
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.loader import load_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.actor import Actor
from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.docs_examples import write_modules
from tests.support.extending import SETTINGS, STEPS, configure, train
from tests.support.forked_commands import ForkedCommand
from tests.support.project import write_project

PAGE = "extending.md"
ROWS = "An algorithm that needs no rollouts"
BOTH = """
import os, runpy, sys
script = sys.argv[1]
sys.path[0] = os.path.dirname(script)  # as for a script
for run in ("first", "fed"):
    sys.argv[1:] = [f"{run}.toml", run]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's folder with every example in it."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    for heading in ("An engine", "A way of syncing weights", "A batch source", ROWS):
        write_modules(PAGE, heading, folder)
    return folder


@pytest.fixture(scope="module")
def runs(project):
    """Two runs by the script of the page, one after the other in a process. The first one's engine
    is the page's, which takes its weights by the page's way of syncing; the second one is fed by
    the page's source, and starts no workers that sample or score."""
    configure(project, "first", "An engine", "A way of syncing weights")
    configure(project, "fed", "A batch source")
    (script,) = write_modules(PAGE, "The loop without Prefect", project)
    assert ForkedCommand(["-c", BOTH, script], cwd=project).wait() == 0
    return {name: find_run(project / "runs", name) for name in ("first", "fed")}


def test_an_engine_and_a_way_of_syncing_of_a_users_own_train_a_model(runs):
    first = runs["first"]
    assert first.manifest.status == "completed"
    assert first.config.rollout.engine == "plain_engine.py:PlainEngine"
    assert first.config.rollout.weight_sync == "local_copy.py:LocalCopy"
    assert [row["step"] for row in first.metrics()] == [1, 2, 3]
    assert any(row["grad_norm"] > 0 for row in first.metrics())


def test_a_run_that_is_fed_by_another_ends_with_its_bits(runs, project):
    first, fed = runs["first"], runs["fed"]
    assert fed.manifest.final.weights_sha256 == first.manifest.final.weights_sha256
    report = check_run(project / "runs", "fed")
    assert [file for file in report.files if file.damage] == []
    for step in range(STEPS):
        again = batches.recorded(Session(fed, None), step)
        assert again.batch == find_entry(fed.store, step).request.batch


def workers_of(run):
    return {path.name.partition("-")[0] for path in run.store.path("logs").glob("*-0*.log")}


def test_a_source_that_needs_no_samplers_starts_none(runs):
    assert workers_of(runs["first"]) == {"actor", "rollout", "reward"}
    assert workers_of(runs["fed"]) == {"actor"}
    assert list(runs["fed"].store.path("weights").glob("*")) == []


KILLED_ONCE = """
import os, pathlib, signal

from plain_rows import PlainRows

class KilledOnce(PlainRows):
    async def take(self, step):
        mark = pathlib.Path("killed")
        if step == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().take(step)
"""


def test_an_algorithm_that_trains_on_rows_is_resumed_to_the_same_bits(project):
    (project / "killed_once.py").write_text(KILLED_ONCE)
    configure(project, "whole", ROWS)
    configure(project, "killed", ROWS, source="killed_once:KilledOnce")
    (script,) = write_modules(PAGE, "The loop without Prefect", project)

    assert train(script, "whole") == 0
    assert train(script, "killed") == -signal.SIGKILL
    assert train(script, "killed") == 0
    whole, killed = (find_run(project / "runs", name) for name in ("whole", "killed"))
    assert killed.manifest.attempts == 2
    assert workers_of(whole) == workers_of(killed) == {"actor"}
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    losses = [row["loss"] for row in whole.metrics()]
    assert [row["loss"] for row in killed.metrics()] == losses
    assert losses[-1] < losses[0]
    assert [file for file in check_run(project / "runs", "killed").files if file.damage] == []


def test_a_source_and_an_algorithm_have_to_fit(project):
    values = load_config(project / "tiny.toml", SETTINGS).model_dump()
    values["rollout"]["source"] = "plain_rows:PlainRows"
    config = parse_config(values)
    actor = Actor(
        run_dir=str(project), plan=Plan(config).actor, fingerprint="", model_path="", num_steps=1
    )
    with pytest.raises(ConfigError, match=r"algorithm\.type = 'grpo' trains on .*supplies Rows"):
        actor.check(train=[], held_out=[], supplied="Rows", sampled=0)
