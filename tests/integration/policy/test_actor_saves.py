"""What the actor keeps: checkpoints, published versions, the final model."""

import json
import os

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ActorStateError
from mortal_steps.policy.model_files.writing import save_settings
from mortal_steps.policy.on_disk import weights
from mortal_steps.policy.starting_model.base_model import base_of, keep_base_model
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.store import digests
from mortal_steps.store.digests import digest_of_file
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import ADAPTER, LORA, NUM_STEPS, SETUPS, make_run, untimed

MERGED = {"lora": {"publish": "merged"}}

# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_is_taken_once(run, actor):
    run.train(actor, range(2))
    saved = actor.checkpoint(step=2, best_score=None)
    assert (saved.step, saved.path) == (2, "checkpoints/step-2")
    assert saved.timing.busy_s > 0
    again = actor.checkpoint(step=2, best_score=None)
    assert untimed(again) == untimed(saved)
    run.train(actor, [2])
    assert untimed(actor.checkpoint(step=2, best_score=0.5)) == untimed(saved)
    assert untimed(run.actor().checkpoint(step=2, best_score=None)) == untimed(saved)


def test_a_resume_hashes_each_file_of_a_checkpoint_once(run, actor, monkeypatch):
    run.train(actor, range(2))
    saved = actor.checkpoint(step=2, best_score=None)
    folder = run.store.path(saved.path)
    files = run.store.folder_files(saved.path)
    assert saved.timing.num_bytes == sum((folder / name).stat().st_size for name in files)
    assert all(digest == digest_of_file(folder / name) for name, digest in files.items())
    for name in files:  # as after a while: what was changed a moment ago is hashed every time
        os.utime(folder / name, (1, 1))
    hashed = []

    def noted(path):
        hashed.append(path)
        return digest_of_file(path)

    monkeypatch.setattr(digests, "digest_of_file", noted)
    resumed = run.actor()
    assert resumed.prepare(step=2).step == 2
    assert {resumed._states.state.state_id} == {saved.state_id}
    of_the_checkpoint = [path.name for path in hashed if path.parent == folder]
    assert sorted(of_the_checkpoint) == sorted(files)
    flip_a_byte(folder / "optimizer.pt")
    resumed._states.state = None
    assert resumed.prepare(step=2).step == 2  # by replaying: the damage was noticed
    assert of_the_checkpoint != [path.name for path in hashed if path.parent == folder]


def test_a_state_the_actor_is_past_is_reached_again_to_be_saved(run, actor):
    results = run.train(actor, range(2))
    assert actor.checkpoint(step=1, best_score=None).state_id == results[0].state_id
    again = run.train(actor, range(2, NUM_STEPS))
    assert again[-1].state_id == actor.checkpoint(step=NUM_STEPS, best_score=None).state_id


def test_the_last_checkpoints_and_the_best_are_kept(run, actor):
    for step in range(NUM_STEPS):
        run.train(actor, [step])
        actor.checkpoint(step=step + 1, best_score=0.5 if step + 1 == 2 else None)
    names = {path.name for path in run.store.path("checkpoints").iterdir()}
    assert names == {"step-2", "step-4", "step-5", "best.json"}


def test_a_checkpoint_of_another_configuration_is_refused(run, actor):
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    run.config = make_config(learning_rate=0.5)
    with pytest.raises(ActorStateError, match="was written with configuration"):
        run.actor().prepare(step=1)


# --- published versions, the final model ----------------------------------------------------------


def test_old_versions_are_pruned(run, actor):
    run.train(actor, range(4))
    assert weights.published_versions(run.store) == [3, 4]


@pytest.mark.parametrize("training", [{"gradient_checkpointing": True}, LORA | MERGED])
def test_a_version_has_the_settings_of_the_model_as_it_is(model_path, tmp_path, training):
    run = make_run(tmp_path, make_config(**training), model_path)
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, range(2))
    save_settings(actor._states.state.stepper._trainer.model, tmp_path / "now")
    assert (tmp_path / "now" / "config.json").exists()
    for path in (tmp_path / "now").iterdir():
        assert run.store.path(f"weights/v2/{path.name}").read_bytes() == path.read_bytes()


def test_versions_in_use_are_kept(model_path, tmp_path):
    config = make_config(rollout={"sync_weights_every": 3})
    run = make_run(tmp_path, config, model_path)
    actor = run.actor()
    actor.prepare(step=0)
    for step in range(5):
        actor.train_step(request=run.request(step, publish=(step + 1) % 3 == 0))
    assert weights.published_versions(run.store) == [0, 3]
    assert [ready.version for ready in run.actor().prepare(step=5).weights] == [3]


@pytest.mark.parametrize("setup", ["full", "lora"])
def test_the_final_model_is_the_trained_one(model_path, tmp_path, setup):
    training = SETUPS[setup]
    if setup == "lora":
        training = {**training, "lora": {"merge_final": True}}
    config = make_config(model={"name_or_path": model_path}, **training)
    run = make_run(tmp_path, config, model_path)
    actor = run.actor()
    results = run.train(actor, range(NUM_STEPS))
    final = actor.save_final()
    # A lost actor replays the run, removes what it left half-written and writes the same bits.
    rows = ("orders/.000002.json.c.partial", "data/.reference.d.partial")
    names = ("weights/.v9.a.partial", ".final.b.partial", *rows)
    left = [run.store.path(name) for name in names]
    for folder in left:
        folder.mkdir(parents=True)
    assert run.actor().save_final() == final
    assert not any(folder.exists() for folder in left)
    merged = final.merged_path or final.path
    published = run.store.path(results[-1].weights.path)
    assert weights.weights_digest(run.store.path(merged)) == weights.weights_digest(published)
    AutoModelForCausalLM.from_pretrained(run.store.path(merged))
    for folder in {final.path, merged}:
        tokenizer = AutoTokenizer.from_pretrained(run.store.path(folder))
        assert tokenizer("cab")["input_ids"] == [5, 3, 4]
        saved = (run.store.path(folder) / "tokenizer_config.json").read_text()
        assert "local" not in saved  # which would follow HF_HUB_OFFLINE
    assert (final.merged_path is None) == (setup == "full")
    has_adapter = run.store.path("final/adapter_model.safetensors").exists()
    assert has_adapter == (setup == "lora")
    if has_adapter:  # its configuration is the same in every process
        names = json.loads(run.store.path("final/adapter_config.json").read_text())
        assert names["target_modules"] == sorted(names["target_modules"])
        assert names["base_model_name_or_path"] == model_path
        card = run.store.path("final/README.md").read_text()
        assert f"adapter of `{model_path}`" in card
        assert "More Information Needed" not in card


def test_whether_the_adapter_travels_alone_does_not_change_what_is_trained(model_path, tmp_path):
    """Published alone it is the final one, file by file, and the digests of the steps are the same
    as where whole models are published."""
    digests = {}
    for setup, training in {"merged": LORA, "adapter": ADAPTER}.items():
        run = make_run(tmp_path / setup, make_config(**training), model_path)
        actor = run.actor()
        results = run.train(actor, range(NUM_STEPS))
        digests[setup] = [result.weights_digest for result in results]
        final = run.store.folder_files(actor.save_final().path)
        published = run.store.folder_files(results[-1].weights.path)
    assert digests["merged"] == digests["adapter"]
    assert published.pop("probe.json")
    assert published.keys() == {"adapter_config.json", "adapter_model.safetensors"}
    assert {name: final[name] for name in published} == published


def test_an_adapter_names_the_place_where_the_run_began_with_its_base(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    local = make_config(model={"name_or_path": "./tiny"})
    assert base_of(run.store, local.model, "./tiny").name == str(tmp_path / "tiny")
    made = tmp_path / "runs" / ".models" / "made"
    for place in (made, tmp_path / "moved" / "made"):
        build_model(place, NewModelConfig(hidden_size=32, num_layers=1), seed=0)
        (place / "manifest.json").write_text("{}")
        keep_base_model(run.store, place)
        assert base_of(run.store, run.config.model, str(place)).name == str(made)


def test_an_actor_that_another_one_overtook_saves_the_same_model(run, actor):
    other = run.actor()
    requests = [run.request(step) for step in range(NUM_STEPS)]
    results = [other.train_step(request=request) for request in requests]
    late = [actor.train_step(request=request) for request in requests]
    assert [untimed(result) for result in late] == [untimed(result) for result in results]
    assert actor.save_final() == other.save_final()
