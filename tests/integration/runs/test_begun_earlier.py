"""A run goes on under newer code, by its own fingerprint.

`begun_in_0_1_0.tar.gz` (`make fixture`) is a project whose run was begun by version 0.1.0 and
killed in its fourth step of six. `ended.json` in it says how that version ended the same run, on
the machine that made it. Another CPU may round otherwise, so what is compared with it everywhere is
what does not depend on the CPU: which problems each step has, and that the chain of states goes on
without a break from the recorded one. The bits are compared where a run of this code from the
beginning samples the very log-probabilities that were recorded; elsewhere those tests are skipped.
"""

import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from mortal_steps.errors import NewerFormatError, StoreError
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.policy.starting_model import base_model
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import find_run, list_runs
from mortal_steps.runs.verify import check_run
from mortal_steps.store import FORMAT
from mortal_steps.store.records import shard_files
from mortal_steps.types import GeneratedShard, Problem
from tests.support.bare_flow import go_on
from tests.support.damage import flip_a_byte

ARCHIVE = Path(__file__).with_name("begun_in_0_1_0.tar.gz")
SETTINGS = "tiny.toml"
KNOWN = 4
"""Steps that were taken before the kill."""


@pytest.fixture
def begun(tmp_path, patch):
    return unpacked(tmp_path, patch)


def unpacked(folder, patch):
    """The project, as it was left, with how its run would have ended."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    patch.chdir(folder / "project")
    return SimpleNamespace(**json.loads(Path("ended.json").read_text()))


def know_another_key(patch):
    """Let configurations have one key more, with a default, than when the run began."""
    known = RunConfig.identity

    def with_another(config, *, defaults=True):
        return {**known(config, defaults=defaults), "newer": {"key": 1}}

    patch.setattr(RunConfig, "identity", with_another)


def logprobs_of(run):
    """Those of every completion that the older code sampled, to the last bit."""
    files = [
        f"steps/{step:06d}/{path.name}"
        for step in range(KNOWN)
        for path, content in shard_files(run.store.path(f"steps/{step:06d}"))
        if content == "generations"
    ]
    shards = [run.store.find_record(file, GeneratedShard)[1] for file in files]
    return [
        list(completion.logprobs)
        for shard in shards
        for group in shard.groups
        for completion in group.completions
    ]


@pytest.fixture(scope="module")
def rounds_alike(tmp_path_factory, patch):
    """Skips where this code, from the beginning, does not come to what was recorded."""
    ended = unpacked(tmp_path_factory.mktemp("recorded"), patch)
    recorded = find_run(Path.cwd() / "runs", "run")
    settings = {"run_id": "fresh", "runs_dir": str(tmp_path_factory.mktemp("fresh"))}
    fresh = go_on(load_config(Path(SETTINGS)).model_copy(update=settings))
    if weights_digest(fresh.store.path("final")) != ended.weights_sha256:
        assert logprobs_of(fresh) != logprobs_of(recorded), "the same rollouts, another model"
        pytest.skip("this machine rounds otherwise than the one where the run began")


def states_of(run, steps):
    return [journal.find_result(run.store, step).state_id for step in range(steps)]


PARTED = (
    f"is of another state than step {KNOWN - 1} led to",
    "is of other weights than the step before it left: the chain parts here, after a replay on "
    "other hardware or with other versions of the libraries",
)
"""What `mortal verify` says, where a machine rounds otherwise than the one where the run began."""


def whole(run):
    """Every file as it was committed, every state following from the one before it."""
    check = check_run(run.store.root.parent, run.info.run_id)
    assert [file for file in check.files if file.damage] == []
    return check.num_linked == check.num_steps - run.info.first_step


def resumed():
    """What `mortal resume` goes on with."""
    return find_run(Path("runs"), "run").config


@pytest.fixture(scope="module")
def gone_on(tmp_path_factory, patch):
    """The run gone on with to its end, by code that knows another key; and its recorded end."""
    ended = unpacked(tmp_path_factory.mktemp("begun"), patch)
    with pytest.MonkeyPatch.context() as newer:
        know_another_key(newer)
        go_on(resumed())
    run = find_run(Path.cwd() / "runs", "run")
    return run, ended


def test_it_goes_on_to_its_end_though_there_is_another_key_by_now(gone_on):
    run, ended = gone_on
    assert run.is_complete() and run.manifest.step == 6
    found = check_run(run.store.root.parent, run.info.run_id)
    assert {file.damage for file in found.files if file.damage} <= {*PARTED}
    assert states_of(run, KNOWN) == ended.state_ids[:KNOWN]
    batches = [f"steps/{step:06d}/batch.json" for step in range(6)]
    problems = [run.store.find_record(name, list[Problem])[0].sha256 for name in batches]
    assert problems == ended.problems
    saved = checkpoints.newest_whole(run.store)
    assert checkpoints.read_state(run.store, saved.path).fingerprint == run.info.fingerprint


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_completions_that_were_lost_are_made_again_as_they_were(rounds_alike, begun, patch, how):
    """The journal names them by their digest, and so does the chain of states."""
    run = find_run(Path("runs").absolute(), "run")
    for path, _ in shard_files(run.store.path("steps/000002")):
        if path.stem in ("generations-0", "rewards-1"):
            flip_a_byte(path) if how == "damaged" else path.unlink()
    go_on(resumed())
    assert states_of(run, KNOWN) == begun.state_ids[:KNOWN]
    assert whole(find_run(Path("runs").absolute(), "run"))


def test_it_ends_with_the_bits_that_the_older_code_would_have_ended_with(rounds_alike, gone_on):
    run, ended = gone_on
    assert whole(run)
    assert weights_digest(run.store.path("final")) == ended.weights_sha256
    assert_holds(run.metrics(), ended.metrics)
    assert_holds(run.logs.read(EVALUATIONS), ended.evaluations)


def assert_holds(rows, recorded):
    """Newer code may say more in a line, chain more into a state's id, and counts the tokens of all
    steps so far, as TRL does."""
    other = {"state_id": None, "num_tokens": None}
    for row, said in zip(rows, recorded, strict=True):
        assert {**row, **said, **other} == {**row, **other}


def test_it_can_be_opened_with_its_own_file_though_there_is_another_key_by_now(begun, monkeypatch):
    known = find_run(Path("runs"), "run").info.fingerprint
    know_another_key(monkeypatch)
    run = open_run(load_config(Path(SETTINGS)))
    assert run.config.fingerprint() != run.info.fingerprint == known
    with pytest.raises(
        StoreError, match=r"different: training\.learning_rate was 0\.01, now 0\.02"
    ):
        open_run(load_config(Path(SETTINGS), ["training.learning_rate=0.02"]))


def test_a_fork_without_changes_is_the_same_run_as_its_older_parent(begun, monkeypatch):
    know_another_key(monkeypatch)
    parent = find_run(Path("runs").absolute(), "run")
    same = fork_run(parent, run_id="same")
    assert same.info.fingerprint == parent.info.fingerprint
    saved = checkpoints.newest_whole(same.store)
    assert not checkpoints.read_state(same.store, saved.path).forked
    with pytest.raises(StoreError, match="run same exists"):
        fork_run(parent, run_id="same")
    other = fork_run(parent, ["training.learning_rate=0.02"], run_id="other")
    assert other.info.fingerprint == other.config.fingerprint() != parent.info.fingerprint
    saved = checkpoints.newest_whole(other.store)
    assert checkpoints.read_state(other.store, saved.path).forked
    assert whole(same) and whole(other)


def test_values_that_mean_the_same_are_no_other_configuration(begun):
    """The digests of 0 and 0.0 differ, and there would be nothing to tell as the reason."""
    for decay in ("0", "0.0"):
        overrides = [f"training.trl.weight_decay={decay}", "run_id=fresh"]
        open_run(load_config(Path(SETTINGS), overrides))


def test_what_newer_code_wrote_is_refused_by_its_format(begun, caplog):
    path = Path("runs/run/run.json")
    head, body = path.read_bytes().split(b"\n", 1)
    newer = json.dumps({**json.loads(head), "format": FORMAT + 1}).encode()
    path.write_bytes(newer + b"\n" + body)
    with pytest.raises(
        NewerFormatError,
        match=rf"run\.json is of format {FORMAT + 1}, .* none beyond {FORMAT}: a newer",
    ):
        find_run(Path("runs"), "run")
    assert list_runs(Path("runs")) == []
    assert f"of format {FORMAT + 1}" in caplog.text
    path.write_bytes(head + b"\n" + body)
    run = find_run(Path("runs"), "run")
    state = run.store.path("checkpoints/step-2/state.json")
    state.write_text(json.dumps({**json.loads(state.read_text()), "format": FORMAT + 1, "new": 1}))
    with pytest.raises(NewerFormatError, match=rf"state\.json is of format {FORMAT + 1}"):
        checkpoints.read_state(run.store, "checkpoints/step-2")


def test_a_run_keeps_the_folder_of_its_first_model(begun, patch):
    """Another release would call it otherwise, and make it again; a CPU may round otherwise."""
    run = find_run(Path("runs"), "run")
    record = run.store.path(base_model.RECORD_FILE)
    made = run.store.find_record(base_model.RECORD_FILE, base_model.StartingModel)[1]
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(base_model, "__version__", "99")
        data = run.info.dataset_fingerprint
        assert Path(base_model.base_model_path(run.plan.actor, data)).name != made.key
        assert Path(base_model.first_model(run.store, run.plan.actor, data)).name == made.key
        record.unlink()
        assert Path(base_model.first_model(run.store, run.plan.actor, data)).name != made.key
