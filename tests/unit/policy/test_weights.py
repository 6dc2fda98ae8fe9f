"""Published versions load as plain models, hold what the actor holds, and never change."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from mortal_steps.config import NewModelConfig
from mortal_steps.data.problem_files import keep_problems
from mortal_steps.errors import CorruptFileError, ModelError, StoreError, WeightsMismatchError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.on_disk import weights
from mortal_steps.policy.publishing import Publisher, probe_tokens
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.store import RunStore
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import Problem
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.stepped import make_stepper
from tests.support.refused import refused

PROBE = [5, 6, 7, 30, 5, 6, 7, 30]
LORA = {"use_lora": True, "lora": {"dropout": 0.2}}
ADAPTER = {"use_lora": True, "lora": {"dropout": 0.2, "publish": "adapter"}}


def publish(store, stepper, version):
    config = make_config()
    publisher = Publisher(store, config.rollout, config.model, config.training, BackgroundClock())
    publisher._probe = PROBE
    published = publisher.publish(stepper, version)
    publisher.finish()
    return published


def parameters(stepper):
    return {name: p.detach().clone() for name, p in stepper._trainer.model.named_parameters()}


def logprobs_of(model, token_ids):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([token_ids])).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(token_ids[1:])[:, None]).squeeze(1)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run")


@pytest.mark.parametrize("training", [{}, LORA], ids=["full", "lora"])
def test_a_published_version_is_the_policy(model_path, tmp_path, store, training):
    stepper = make_stepper(model_path, tmp_path / "out", **training)
    assert not stepper._trainer.model.config.use_cache, "stock TRL trains without"
    reference = publish(store, stepper, 2)
    assert (reference.version, reference.path) == (2, "weights/v2")
    folder = store.verify_folder(reference.path, reference.sha256)
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "probe.json",
        "manifest.json",
    }
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.config.use_cache
    probe = json.loads((folder / "probe.json").read_text())
    assert probe["token_ids"] == PROBE
    assert len(probe["logprobs"]) == len(PROBE) - 1
    torch.testing.assert_close(
        logprobs_of(loaded, PROBE), torch.tensor(probe["logprobs"]), atol=1e-5, rtol=0
    )
    untrained = AutoModelForCausalLM.from_pretrained(model_path)
    assert (logprobs_of(untrained, PROBE) - torch.tensor(probe["logprobs"])).abs().max() > 0.01


def test_a_published_adapter_is_the_policy_beside_its_base(model_path, tmp_path, store):
    """Its probe is scored with the adapter beside the base, as engines compute it."""
    stepper = make_stepper(model_path, tmp_path / "out", **ADAPTER)
    folder = store.path(publish(store, stepper, 2).path)
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "probe.json",
        "manifest.json",
    }
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["target_modules"] == sorted(config["target_modules"])
    named = make_config().model.name_or_path
    assert (config["base_model_name_or_path"], config["inference_mode"]) == (named, True)
    base = AutoModelForCausalLM.from_pretrained(model_path)
    untrained = logprobs_of(base, PROBE)
    loaded = PeftModel.from_pretrained(base, folder).eval()
    probe = json.loads((folder / "probe.json").read_text())
    assert logprobs_of(loaded, PROBE).tolist() == pytest.approx(probe["logprobs"], abs=1e-6)
    assert (untrained - torch.tensor(probe["logprobs"])).abs().max() > 0.01


def test_version_0_is_the_model_itself(model_path, tmp_path, store):
    for name, training in {"full": {}, "lora": LORA}.items():
        stepper = GRPO().stepper(
            Plan(make_config(**training)).trainer,
            model_path=model_path,
            num_steps=1,
            output_dir=tmp_path,
        )
        stepper.begin()
        folder = tmp_path / f"{name}-v0"
        stepper.export_weights(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder).state_dict()
        original = AutoModelForCausalLM.from_pretrained(model_path).state_dict()
        assert loaded.keys() == original.keys()
        assert all(torch.equal(loaded[key], original[key]) for key in loaded)


def test_merging_an_adapter_equals_its_forward_and_leaves_the_live_model(model_path, tmp_path):
    stepper = make_stepper(model_path, tmp_path / "out", **LORA)
    before = parameters(stepper)
    stepper.save_final(tmp_path / "adapter")
    stepper.save_merged(tmp_path / "merged")
    after = parameters(stepper)
    assert all(torch.equal(before[name], after[name]) for name in before)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    base = AutoModelForCausalLM.from_pretrained(model_path)
    adapted = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    difference = logprobs_of(merged, PROBE) - logprobs_of(adapted, PROBE)
    assert difference.abs().max() < 1e-5
    # peft's own merge is the same to the bit.
    theirs = adapted.merge_and_unload().state_dict()
    ours = merged.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "targets", [("gate_proj", "up_proj"), ("q_proj", "gate_proj", "up_proj", "down_proj")]
)
def test_so_does_merging_one_of_experts(model_path, tmp_path, targets):
    """PEFT adapts one or two parameters of the same module, the one around the other."""
    base = tmp_path / "base"
    shutil.copytree(model_path, base)
    shape = AutoConfig.from_pretrained(model_path).to_dict()
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    del shape["model_type"], shape["architectures"]
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts)).save_pretrained(base)
    lora = {"dropout": 0.0, "target_modules": targets}
    stepper = make_stepper(str(base), tmp_path / "out", use_lora=True, lora=lora)
    stepper.save_final(tmp_path / "adapter")
    stepper.save_merged(tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter"
    )
    assert (logprobs_of(adapted, PROBE) - logprobs_of(merged, PROBE)).abs().max() < 1e-5
    untrained = AutoModelForCausalLM.from_pretrained(base)
    assert (logprobs_of(untrained, PROBE) - logprobs_of(merged, PROBE)).abs().max() > 1e-3
    theirs = adapted.merge_and_unload().state_dict()
    assert all(torch.equal(each, theirs[name]) for name, each in merged.state_dict().items())


@pytest.mark.parametrize("training", [{}, LORA, ADAPTER], ids=["full", "lora", "adapter"])
def test_scoring_and_exporting_leave_no_trace(model_path, tmp_path, training):
    config = make_config(**training)
    outcomes = []
    for disturbed in (False, True):
        stepper = GRPO().stepper(
            Plan(config).trainer, model_path=model_path, num_steps=2, output_dir=tmp_path / "out"
        )
        stepper.begin()
        stepper.train_step(make_batch(config, 0), seed=0)
        if disturbed:
            state = torch.random.get_rng_state()
            mode = stepper._trainer.model.training
            assert stepper.score(PROBE) == stepper.score(PROBE)
            stepper.export_weights(tmp_path / "exported")
            stepper.save_state(tmp_path / "state")
            assert torch.equal(torch.random.get_rng_state(), state)
            assert stepper._trainer.model.training == mode
        metrics = stepper.train_step(make_batch(config, 1), seed=1)
        outcomes.append((metrics, parameters(stepper)))
    (first, weights_first), (second, weights_second) = outcomes
    assert first == second
    assert all(torch.equal(weights_first[n], weights_second[n]) for n in weights_first)


def test_a_version_is_published_once(model_path, tmp_path, store):
    stepper = make_stepper(model_path, tmp_path / "out")
    reference = publish(store, stepper, 2)
    written = store.path("weights/v2/model.safetensors").stat().st_mtime_ns
    assert publish(store, stepper, 2) == reference
    assert store.path("weights/v2/model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in store.path("weights").iterdir()] == ["v2"]
    stepper.train_step(make_batch(make_config(), 2), seed=2)
    with refused(WeightsMismatchError, "version 2"):
        publish(store, stepper, 2)
    assert weights.find(store, 2) == reference


@pytest.mark.parametrize("name", ["model.safetensors", "probe.json", "manifest.json"])
def test_a_damaged_version_is_noticed(model_path, tmp_path, store, caplog, name):
    stepper = make_stepper(model_path, tmp_path / "out", num_steps=1)
    reference = publish(store, stepper, 1)
    flip_a_byte(store.path(f"weights/v1/{name}"))
    with pytest.raises(CorruptFileError):
        store.verify_folder(reference.path, reference.sha256)
    if name != "manifest.json":  # whoever has no reference cannot tell an altered manifest
        assert weights.find(store, 1) is None
        assert "published version 1 cannot be used" in caplog.text
        assert publish(store, stepper, 1) == reference


def test_the_digest_of_several_files_is_of_their_digests(tmp_path):
    (tmp_path / "model-1.safetensors").write_bytes(b"one")
    alone = weights.weights_digest(tmp_path)
    (tmp_path / "model-2.safetensors").write_bytes(b"two")
    assert weights.weights_digest(tmp_path) != alone


# --- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "length", "start"),
    [
        ("abc", 9, [3, 4, 5, 3, 4, 5]),
        ("abcdefghij", 10, [3, 4, 5]),
        ("ab" * 100, 64, [3, 4, 3, 4]),
        ([{"role": "user", "content": "ab"}], 9, [3, 4, 1, 3, 4, 1]),
    ],
)
def test_the_probe_is_the_first_prompt(model_path, tmp_path, store, prompt, length, start):
    config = make_config()
    problems = [Problem(id="a", prompt=prompt), Problem(id="b", prompt="zzz")]
    keep_problems(store, problems, [])
    tokenizer = (
        GRPO()
        .stepper(Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path)
        .tokenizer
    )
    probe = probe_tokens(store, tokenizer, {}, config.model.max_model_len)
    assert len(probe) == length
    assert probe[: len(start)] == start


def test_a_run_without_problems_has_no_probe(store):
    with refused(StoreError, "train.arrow"):
        probe_tokens(store, None, {}, 512)


# --- models that cannot be used -------------------------------------------------------------------


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"no usable model at .*nowhere"):
        GRPO().stepper(
            Plan(make_config()).trainer,
            model_path=str(tmp_path / "nowhere"),
            num_steps=1,
            output_dir=tmp_path,
        )


def test_a_model_without_tokenizer_is_named(model_path, tmp_path):
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(f"{model_path}/{name}", tmp_path / name)
    with pytest.raises(ModelError, match="has no tokenizer; save one there"):
        GRPO().stepper(
            Plan(make_config()).trainer, model_path=str(tmp_path), num_steps=1, output_dir=tmp_path
        )


def test_a_model_without_weights_is_named(tmp_path):
    build_model(tmp_path, NewModelConfig(), seed=0)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot load the model"):
        GRPO().stepper(
            Plan(make_config()).trainer, model_path=str(tmp_path), num_steps=1, output_dir=tmp_path
        )
