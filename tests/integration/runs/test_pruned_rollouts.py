"""`checkpoints.keep_rollouts`: what goes, what stays, and that no run needs what went."""

import shutil
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError, DataError
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import parse_config
from mortal_steps.policy.on_disk.rollout_files import pruned_before
from mortal_steps.report.log_repair import restore_logs
from mortal_steps.report.samples import samples_of
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.bare_flow import Killed, go_on, project_config

KEEPS = {"training.max_steps": 9, "checkpoints.keep_rollouts": 1}
STAYS = {"journal.json", "result.json"}


def config_of(project, name, **overrides):
    config = project_config(project, **{"training.max_steps": 9, **overrides})
    return config.model_copy(update={"runs_dir": str(project / name)})


@pytest.fixture(scope="module")
def whole(project, patch):
    """A run that keeps everything."""
    return go_on(config_of(project, "whole"))


@pytest.fixture(scope="module")
def pruned(project, patch):
    """One that keeps the rollouts of a single step, and its checkpoints after 6, 8 and 9 steps."""
    return go_on(config_of(project, "pruned", **KEEPS))


def rollouts_there(run):
    """Steps that have any."""
    files = run.store.root.glob("steps/*/*")
    return sorted({int(f.parent.name) for f in files if f.name not in STAYS})


def damage_in(run):
    return [file for file in check_run(run.store.root.parent, "run").files if file.damage]


def test_what_the_checkpoints_are_replayed_through_stays(pruned, whole):
    assert rollouts_there(whole) == list(range(9))
    assert rollouts_there(pruned) == [8]
    assert pruned_before(pruned.store) == 8, "the checkpoints after 8 and 9 steps are the last two"
    for step in range(9):
        names = {path.name for path in pruned.store.path(f"steps/{step:06d}").iterdir()}
        assert names >= STAYS


def test_the_bits_are_those_of_a_run_that_keeps_all(pruned, whole):
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert pruned.store.path(name).read_bytes() == whole.store.path(name).read_bytes()
    final = [run.manifest.final.weights_sha256 for run in (pruned, whole)]
    assert final[0] == final[1]
    assert pruned.info.fingerprint == whole.info.fingerprint


def test_verify_knows_that_they_went_on_purpose(pruned, tmp_path):
    assert damage_in(pruned) == []
    check = check_run(pruned.store.root.parent, "run")
    assert check.num_linked == 9
    shutil.copytree(pruned.store.root, tmp_path / "run")
    (tmp_path / "run/steps/000008/batch.json").unlink()
    damaged = [file for file in check_run(tmp_path, "run").files if file.damage]
    assert [file.path.name for file in damaged if "steps" in file.path.parts] == ["batch.json"]


def test_samples_metrics_and_forks_are_still_to_be_had(pruned, tmp_path, patch):
    assert samples_of(pruned, 1)
    shutil.copytree(pruned.store.root, tmp_path / "run")
    run = find_run(tmp_path, "run")
    log = run.store.path("metrics.jsonl")
    before = log.read_bytes()
    log.write_bytes(b"")
    restore_logs(run)
    assert log.read_bytes() == before
    fork = fork_run(run, ["training.max_steps=12"], at_step=8)
    gone_on = go_on(fork.config)
    assert gone_on.is_complete()
    assert rollouts_there(gone_on) == [10, 11], "its checkpoints are of 8, 10 and 12 steps"


def test_the_completions_of_any_step_that_has_them_can_be_read(whole, pruned, tmp_path):
    assert samples_of(whole, 2) == samples_of(whole, 2, step=9)
    some = samples_of(whole, 1, step=3)
    assert [sample.kind for sample in some] == ["best", "worst"]
    assert {sample.step for sample in some} == {3}
    worst = samples_of(whole, 3, step=3, kinds=["worst"])
    assert {sample.kind for sample in worst} == {"worst"} and some[1] in worst
    assert len(worst) == 3 and samples_of(whole, 3, kinds=["masked"]) == []
    with pytest.raises(DataError, match=r"of step 10: run run has those of steps 1 to 9"):
        samples_of(whole, 1, step=10)
    with pytest.raises(DataError, match=r"step 8 are not kept any more .* of steps 9 to 9"):
        samples_of(pruned, 1, step=8)
    shutil.copytree(whole.store.root, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/steps")  # as here of a run on Modal
    with pytest.raises(
        DataError, match=r"step 9 are not in .* `mortal fetch run --runs-dir .* --all`"
    ):
        samples_of(find_run(tmp_path, "run"), 1)
    best, worst = samples_of(pruned, 1, step=9)
    assert best.relative >= 0 >= worst.relative


@pytest.mark.parametrize("unlinks", [0, 1, 4])
def test_a_run_killed_while_it_prunes_goes_on_to_the_same_bits(
    project, patch, whole, tmp_path, unlinks, monkeypatch
):
    config = config_of(project, "pruned", **KEEPS).model_copy(update={"runs_dir": str(tmp_path)})
    unlink, left = Path.unlink, [None] * unlinks

    def unlink_some(path, missing_ok=False):
        if path.parent.parent.name == "steps" and not path.name.startswith("."):
            if not left:
                raise Killed
            left.pop()
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as killing:
        killing.setattr(Path, "unlink", unlink_some)
        with pytest.raises(Killed):
            go_on(config)
    assert damage_in(find_run(tmp_path, "run")) == []
    run = go_on(config)
    assert run.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert rollouts_there(run) == [8]
    assert damage_in(run) == []


def test_a_run_that_lost_its_newest_checkpoint_replays_what_was_kept(pruned, tmp_path, patch):
    shutil.copytree(pruned.store.root, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints/step-9")
    shutil.rmtree(tmp_path / "run/final")
    config = pruned.config.model_copy(update={"runs_dir": str(tmp_path)})
    final = pruned.manifest.final.weights_sha256
    assert go_on(config).manifest.final.weights_sha256 == final


def test_the_key_may_be_set_in_mid_run_and_wants_two_checkpoints(project, patch, whole, tmp_path):
    shutil.copytree(whole.store.root, tmp_path / "run")
    config = config_of(project, "whole", **KEEPS).model_copy(update={"runs_dir": str(tmp_path)})
    assert open_run(config).info.fingerprint == whole.info.fingerprint
    with pytest.raises(ConfigError, match=r"keep_rollouts = 3 needs keep_last = 2 or more"):
        parse_config({"checkpoints": {"keep_rollouts": 3, "keep_last": 1}})
