"""Files on their way from the Volume: what a kill or a full disk leaves of them here."""

import contextlib
import time

import pytest
from modal import exception

from mortal_steps.errors import ConfigError, CorruptFileError, LeaseLostError, StoreError
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.checking.reward_calls import called_here, check_rewards
from mortal_steps.orchestration.trials.opening import passing_workers
from mortal_steps.places.modal import retry
from mortal_steps.places.modal.files import volume_runs
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.batches import ScoredRollouts, TrainRequest
from mortal_steps.policy.journal import JournalEntry, write_entry
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_here
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    FinalModel,
    GeneratedShard,
    GenerationRef,
    Problem,
    RewardedShard,
    RewardRef,
    StageTiming,
)
from tests.support.refused import refused
from tests.support.rewards.shards import make_shard


class Folder:
    """A Volume that is a folder."""

    name = "folder"

    def __init__(self, root):
        self._root = root

    async def find(self, path):
        file = self._root / path
        return file.read_bytes() if file.exists() else None

    async def files(self, folder):
        below = (self._root / folder).rglob("*")
        return sorted(str(path.relative_to(self._root)) for path in below if path.is_file())

    async def read(self, path):
        content = await self.find(path)
        if content is None:
            raise CorruptFileError(f"{path} is missing")
        return content

    async def download(self, path, target):
        write_atomically(target, await self.read(path))

    async def folders(self, folder):
        return sorted(path.name for path in (self._root / folder).iterdir())


class Killed(BaseException):
    """Nothing that comes after it is done."""


@pytest.fixture
def there(tmp_path):
    """A run on a Volume, at step 2, with a record of that step."""
    store = RunStore(tmp_path / "volume/run")
    config = RunConfig(
        run_id="run",
        data={"source": "x"},
        rewards={"functions": ["m:f"]},
        compute={"backend": "modal"},
    )
    write_identity(store, config, [Problem(id="p", prompt="a")], [])
    store.write_record(MANIFEST_FILE, RunManifest(status="running", step=2), RunManifest)
    store.write_record("steps/000002/batch.json", [], list[Problem])
    write_atomically(store.path("metrics.jsonl"), b'{"step": 1, "reward": 1.0}\n')
    return store


@pytest.mark.parametrize("begun", [False, True])
async def test_a_run_brought_here_is_whole_however_often_that_is_cut_off(
    there, tmp_path, monkeypatch, begun
):
    volume, here = Folder(tmp_path / "volume"), RunStore(tmp_path / "here/run")
    if begun:
        for name in ("run.json", "config.toml", "data/train.arrow", "data/eval.json"):
            write_atomically(here.path(name), there.path(name).read_bytes())
        here.path(MANIFEST_FILE).write_bytes(b"damaged")
    for writes in range(20):  # more than there are
        left = [None] * writes

        def write_some(path, content, left=left):
            if path.is_relative_to(here.root):
                if not left:
                    raise Killed
                left.pop()
            write_atomically(path, content)

        monkeypatch.setattr(volume_runs, "write_atomically", write_some)
        try:
            assert await volume_runs.download_run(volume, here)
        except Killed:
            continue
        break
    for path in there.root.rglob("*"):
        if path.is_file():
            copy = here.path(str(path.relative_to(there.root)))
            assert copy.read_bytes() == path.read_bytes()
    assert find_run(tmp_path / "here", "run").manifest.step == 2


async def test_a_finished_run_gets_its_model_and_one_damaged_there_is_made_again(there, tmp_path):
    volume, here = Folder(tmp_path / "volume"), RunStore(tmp_path / "here/run")
    with there.committing_folder("final") as folder:
        (folder / "weights").write_bytes(b"learned")
    final = FinalModel(
        path="final",
        sha256=there.folder_digest("final"),
        weights_sha256="w",
        merged_path=None,
        merged_sha256=None,
    )
    ended = RunManifest(status="completed", step=3, final=final)
    there.write_record(MANIFEST_FILE, ended, RunManifest)
    await volume_runs.download_run(volume, here)
    run = find_run(tmp_path / "here", "run")
    assert run.is_complete()
    with pytest.raises(StoreError, match=r"most files .* on the Volume mortal-runs.*mortal verify"):
        check_here(tmp_path / "here", "run")

    here.path("final/weights").write_bytes(b"damaged")
    there.path("final/weights").write_bytes(b"lost")
    await volume_runs.download_run(volume, here)
    assert not run.is_complete()
    there.path("final/weights").write_bytes(b"learned")
    await volume_runs.download_run(volume, here)
    assert run.is_complete()


async def test_what_two_machines_paid_in_turn_is_counted_once(there, tmp_path):
    volume, here = Folder(tmp_path / "volume"), RunStore(tmp_path / "here/run")
    paid = [f'{{"stage": "generate", "seconds": {n}}}\n'.encode() for n in range(5)]
    write_atomically(there.path("costs.jsonl"), paid[0] + paid[1] + paid[2])
    write_atomically(here.path("costs.jsonl"), paid[0] + paid[3] + paid[4][:9])
    for _ in range(2):
        await volume_runs.download_run(volume, here)
        assert here.path("costs.jsonl").read_bytes() == b"".join(paid[:4])


def scored(store, step, score):
    """A shard of a step, scored; its reference."""
    shard = make_shard(("ab",), step=step)
    folder = f"steps/{step:06d}"
    generated = store.write_record(shard_file(folder, "generations", 0), shard, GeneratedShard)
    rewarded = RewardedShard(
        step=step, shard=0, generation_sha256=generated.sha256, rewards=[[{"lottery": score}]]
    )
    generation = GenerationRef(
        step=step,
        shard=0,
        file=generated,
        num_completions=1,
        num_tokens=3,
        policy_version=shard.policy_version,
        timing=StageTiming(stage="generate", step=step),
    )
    return RewardRef(
        step=step,
        shard=0,
        file=store.write_record(shard_file(folder, "rewards", 0), rewarded, RewardedShard),
        generation=generation,
        reward_sum=score,
        num_scored=1,
        timing=StageTiming(stage="reward", step=step),
    )


async def test_a_step_that_the_actor_has_begun_to_take_has_the_scores_that_it_took(
    there, tmp_path, caplog
):
    """Another machine had them made, and was lost before the Volume heard how far it was."""
    volume, here = Folder(tmp_path / "volume"), RunStore(tmp_path / "here/run")
    mine = {step: scored(here, step, 0.25) for step in (2, 3, 4, 5)}
    here.write_record(MANIFEST_FILE, RunManifest(status="running", step=3), RunManifest)
    theirs = {step: scored(there, step, 0.75) for step in (2, 3, 4, 5)}
    for step in (2, 3, 5):
        request = TrainRequest(
            step=step, batch=ScoredRollouts(rewards=[theirs[step]]), publish=True
        )
        write_entry(there, JournalEntry(batch_sha256="b", request=request))
    there.path(theirs[5].file.path).unlink()
    await volume_runs.download_batches(volume, here)
    for step, expected in {2: mine, 3: theirs, 4: mine, 5: mine}.items():
        here.check_record(expected[step].file)
    assert "step 000005 is not as the Volume has it" in caplog.text


async def test_a_run_goes_on_where_the_volume_stood_when_its_lease_was_taken(
    there, tmp_path, monkeypatch
):
    """Another machine drove it until then, though it was opened before."""

    @contextlib.asynccontextmanager
    async def workers(run, local, on_stop):
        further = RunManifest(status="running", step=3)
        run.store.write_record(MANIFEST_FILE, further, RunManifest)
        yield local

    monkeypatch.setattr("mortal_steps.places.modal.compute.modal_compute", workers)
    run = find_run(tmp_path / "volume", "run")
    assert run.manifest.step == 2
    async with driver.open_session(run) as session:
        assert session.run.manifest.step == 3
    assert find_run(tmp_path / "volume", "run").manifest.step == 3


async def test_a_download_that_breaks_off_leaves_what_was_there(tmp_path):
    volume, target = RunsVolume("any"), tmp_path / "final/model"
    write_atomically(target, b"as it was")

    class Breaking:
        class read_file_into_fileobj:
            @staticmethod
            async def aio(path, file):
                file.write(b"half of")
                raise errors.pop()

    volume._volume = Breaking
    errors = [FileNotFoundError(), OSError(28, "No space left on device"), Killed()]
    for kind, told in (
        (Killed, None),
        (StoreError, "model: the disk is full"),
        (CorruptFileError, "is missing on"),
    ):
        with pytest.raises(kind, match=told):
            await volume.download("run/final/model", target)
        assert [path.name for path in target.parent.iterdir()] == ["model"]
        assert target.read_bytes() == b"as it was"


async def test_an_error_about_a_file_here_is_not_put_down_to_modal(tmp_path):
    async def ask():
        (tmp_path / "missing").read_bytes()

    with pytest.raises(FileNotFoundError):
        await call_with_retries("something", ask, until=time.time() + 60)


async def test_every_try_of_an_upload_asks_whether_this_process_may(monkeypatch):
    """A machine that slept between two of them has lost the run by then."""
    monkeypatch.setattr(retry, "LONGEST_DELAY_S", 0.01)
    holds, tried = [True, True, False], []

    async def may_write():
        if not holds.pop(0):
            raise LeaseLostError("another one drives the run")

    class Away:
        class batch_upload:
            @staticmethod
            def aio(force):
                tried.append(force)
                raise exception.ConnectionError("no route")

    volume = RunsVolume("any", may_write)
    volume._volume = Away
    with pytest.raises(LeaseLostError):
        await volume.upload({"run/manifest.json": b"{}"})
    assert len(tried) == 2


def test_a_reward_model_on_a_gpu_takes_a_container_that_has_one():
    term = {"type": "model", "model": "./judge", "device": "cuda"}
    there = {"backend": "modal", "modal": {"rewards": "modal"}}
    config = RunConfig(rewards={"terms": [term]}, compute=there)
    problem = Problem(id="train-0", prompt="ab=", columns={})
    with refused(ConfigError, "./judge", "compute.modal.reward_gpu"):
        check_rewards(passing_workers(Plan(config).workers)["reward"], [problem])
    there["modal"]["reward_gpu"] = "L4"
    with_gpu = RunConfig(rewards=config.rewards, compute=there)
    there_is_one = passing_workers(Plan(with_gpu).workers)["reward"]
    check_rewards(there_is_one, [problem])  # which this machine cannot call
    assert with_gpu.compute.gpu_of("reward") == "L4"


def test_a_reward_model_of_a_set_on_a_gpu_is_called_there_alone():
    judge = {"type": "model", "model": "./judge", "device": "cuda"}
    own = {"hard": {"terms": [judge]}, "easy": {"terms": [judge, {"function": "r.py:two"}]}}

    def scoring_of(rewards, **modal):
        config = RunConfig.model_validate(
            {
                "data": {"source": "x.jsonl", "eval_sets": dict.fromkeys(own, "x.jsonl")},
                "rewards": rewards,
                "evaluation": {"sets": own, "decides": "hard"},
                "compute": {"backend": "modal", "modal": {"rewards": "modal", **modal}},
            }
        )
        return Plan(config).scoring

    sets = {"hard": [], "easy": [], "usual": []}
    named = {"functions": ["r.py:one"]}
    with refused(ConfigError, "evaluation.sets.hard.terms", "compute.modal.reward_gpu"):
        called_here(scoring_of(named), sets)
    plan, tried = called_here(scoring_of(named, reward_gpu="L4"), sets)
    assert (plan.rewards.functions, plan.scores_sets_alone) == (("r.py:one",), False)
    assert {name: each.code for name, each in plan.set_rewards.items()} == {"easy": ("r.py:two",)}
    assert tried.keys() == {"easy", "usual"}
    plan, tried = called_here(scoring_of({"terms": [judge]}, reward_gpu="L4"), sets)
    assert plan.scores_sets_alone and tried.keys() == {"easy"}
