"""The real vLLM engine, held to transformers and to the meaning of the sampling parameters."""

from __future__ import annotations

import dataclasses
import re

import pytest
from pydantic import TypeAdapter

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.model_files import check_shapes, tensor_shapes
from mortal_steps.store import RunStore
from mortal_steps.types import (
    FileRef,
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    SamplingParams,
)
from tests.support.policy.sampled import RATIO, corrected_and_not
from tests.support.rollout.adapters import make_adapter, publish_adapter, without_one_tensor
from tests.support.rollout.asked import asked
from tests.support.rollout.cases import ADAPTER_SYNCS, DRAWS, PARAMS, PROBE_IDS, PROMPTS_IDS
from tests.support.rollout.reference import completion_logprobs
from tests.support.rollout.tiny_model import (
    logprobs_of,
    read_model,
)

DRIVER = "tests.support.rollout.vllm_driver"
EOS = 1


@pytest.fixture(scope="session")
def adapted(model_a):
    """`model_a` with an adapter that is new, and with two that are trained."""
    return {f"v{seed}": make_adapter(model_a, seed, spread=0.2 * (seed > 0)) for seed in range(3)}


@pytest.fixture(scope="session")
def adapters(adapted, model_b, other_shape, tmp_path_factory):
    """Their folders, and what should be refused."""
    store, broken = RunStore(tmp_path_factory.mktemp("adapters")), tmp_path_factory.mktemp("broken")
    for version, model in enumerate(adapted.values()):
        publish_adapter(store, version, model)
    publish_adapter(store, 3, make_adapter(other_shape, 1))
    whole = store.path("weights/v1")
    return {
        **{f"v{version}": store.path(f"weights/v{version}") for version in range(3)},
        "other_shape": store.path("weights/v3"),
        "fewer": without_one_tensor(whole, broken / "fewer", zeroed=False),
        "whole": model_b,
    }


@pytest.fixture(scope="session")
def found(vllm_python, folders, adapters, run):
    """What the driver printed."""
    store, requests, swapped = run
    given = {name: str(folder) for name, folder in folders.items()}
    given |= {"adapters": {name: str(folder) for name, folder in adapters.items()}}
    worker = {
        "run_dir": str(store.root),
        "model_path": str(folders["model_a"]),
        "requests": TypeAdapter(list[GenerateRequest]).dump_python(requests, mode="json"),
        "swapped": dataclasses.asdict(swapped),
    }
    found, errors = asked(DRIVER, {**given, "worker": worker})
    return {**found, "stderr": errors}


pytestmark = pytest.mark.vllm


def assert_logprobs(model_folder, sampled, params, prompts_ids=PROMPTS_IDS):
    model = read_model(model_folder)
    for prompt_ids, (token_ids, logprobs, _) in zip(prompts_ids, sampled, strict=True):
        expected = completion_logprobs(model, prompt_ids, token_ids, params)
        assert logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("method", "loaded"),
    [
        ("volume", ["model_a", "model_b", "model_a"]),
        ("untied", ["untied_a", "untied_b"]),
        ("experts", ["experts_a", "experts_b"]),
    ],
)
def test_logprobs_are_transformers_before_and_after_a_sync(found, folders, method, loaded):
    for folder, version in zip(loaded, found[method], strict=True):
        expected = logprobs_of(read_model(folders[folder]), PROBE_IDS)
        assert version["score"] == pytest.approx(expected, abs=1e-4)
        assert_logprobs(folders[folder], version["sampled"], PARAMS["plain"])
    first, second, *rest = found[method]
    assert first["sampled"] != second["sampled"]
    assert all(again == first for again in rest)


def test_what_vllm_holds_is_compared_where_it_is(found):
    compared = found["compared"]
    assert compared["whole"] == dict.fromkeys(compared["names"], True)
    assert compared["asked"] == ["held"], "no tensor was read again"
    layer = "model.layers.1"
    assert compared["self_attn.qkv_proj 0"] == [f"{layer}.self_attn.q_proj.weight"]
    assert compared["self_attn.qkv_proj -1"] == [f"{layer}.self_attn.v_proj.weight"]
    assert compared["mlp.gate_up_proj -1"] == [f"{layer}.mlp.up_proj.weight"]


@pytest.mark.parametrize("name", PARAMS)
def test_sampling_parameters_mean_what_the_vocabulary_says(found, folders, name):
    assert_logprobs(folders["model_a"], found["params"][name], PARAMS[name])


@pytest.mark.parametrize("name", DRAWS)
def test_where_weights_are_equal_there_is_nothing_to_correct(found, folders, tmp_path, name):
    """Whatever filters leave of the vocabulary."""
    given = PROMPTS_IDS, found["params"][name], PARAMS[name]
    on, off = corrected_and_not(folders["model_a"], tmp_path, *given)
    for which in ("min", "mean", "max"):
        assert on[f"{RATIO}{which}"] == pytest.approx(1.0, abs=1e-3)
    assert on["grad_norm"] == pytest.approx(off["grad_norm"], rel=1e-3) != 0


def test_the_sampler_of_gpus_has_what_is_used_of_it(found):
    """Its kernels run on a GPU alone."""
    rows = ["expanded_idx_mapping", "idx_mapping_np"]
    assert found["newer_sampler"] == {
        "sample": ["self", "logits", "expanded_idx_mapping", "idx_mapping", "idx_mapping_np"],
        "apply_temperature": ["self", "logits", *rows],
        "get_top_k_top_p": ["self", *rows],
    }


def test_seeds_are_reproducible_across_order_and_batch(found):
    """Tokens to the last; logprobs to rounding, or to the bit where the batch is the same."""
    params = found["params"]
    for other in (params["backwards"], params["alone"]):
        for (tokens, logprobs, _), (others, other_logprobs, _) in zip(
            params["plain"], other, strict=True
        ):
            assert tokens == others
            assert logprobs == pytest.approx(other_logprobs, abs=1e-5)
    assert params["plain"] != params["other_seeds"]
    # The same prompt twice in a batch, with two seeds.
    assert params["plain"][0] != params["plain"][2]
    assert params["plain"] == found["volume"][0]["sampled"]


def test_one_seed_for_a_shard_repeats_the_shard(found, folders):
    first, again, other, later, of_a_new_engine = found["one_seed"]
    assert first == again == later == of_a_new_engine
    assert first != other
    # The same prompt twice in a batch.
    assert first[0] != first[2]
    assert first != found["params"]["plain"], "no request has a seed of its own"
    assert_logprobs(folders["model_a"], first, PARAMS["plain"])


def test_completions_end_as_they_should(found, tokenizer):
    stop = PARAMS["stop"].stop
    for token_ids, _, reason in found["params"]["to_the_end"]:
        assert (token_ids[-1] == EOS) == (reason == "stop")
        assert EOS not in token_ids[:-1]
    assert any(reason == "stop" for _, _, reason in found["params"]["to_the_end"])
    endings = []
    for token_ids, _, reason in found["params"]["stop"]:
        text = tokenizer.decode(token_ids, skip_special_tokens=True)
        endings.append(text.endswith(stop))
        assert reason == "stop"
        assert text.endswith(stop) or token_ids[-1] == EOS
        assert not any(string in text[:-1] for string in stop)
    assert any(endings)


def test_a_reload_leaves_no_stale_prefix(found, folders):
    """The trap is real: without emptying the cache the logprobs are the old weights' mixture."""
    model, prompt = read_model(folders["model_b"]), PROMPTS_IDS[-1]
    greedy = SamplingParams(max_tokens=4, temperature=0.0)
    ((tokens, logprobs, _),) = found["prefix_cache"]["stale"]
    expected = completion_logprobs(model, prompt, tokens, greedy)
    assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) > 0.1
    assert_logprobs(folders["model_b"], found["prefix_cache"]["fresh"], greedy, [prompt])


def test_a_shard_has_the_same_bits_whatever_the_prefix_cache_held(found):
    """Completions of a group share the keys and values of their prompt. Were they there before the
    shard, its log-probabilities would be rounded in another way."""
    shared = found["common_prompts"]
    assert shared["first"] == shared["again"] == found["common_prompts_anew"]
    assert shared["first"] != shared["another"]
    assert shared["first"] != shared["warm"]
    for (tokens, logprobs, _), (others, other_logprobs, _) in zip(
        shared["first"], shared["warm"], strict=True
    ):
        assert tokens == others
        assert logprobs == pytest.approx(other_logprobs, abs=1e-5)


def test_chunked_prefills_on_a_cpu_are_refused_at_the_start(found):
    assert re.match(
        r"EngineError: rollout\.engine_options\.enable_chunked_prefill = True: on a CPU",
        found["chunked_prefill"],
    )


def test_a_failed_load_is_named_or_recovered(found, folders):
    failures = found["failures"]
    assert "are not this model's" in failures["other_shape"]
    assert str(folders["empty"]) in failures["empty"]
    assert failures["still"] == failures["before"]
    expected = logprobs_of(read_model(folders["model_b"]), PROBE_IDS)
    assert failures["recovered"] == pytest.approx(expected, abs=1e-4)
    assert "vLLM refused" in failures["too_long"]


def test_bfloat16_and_a_shorter_context(found, folders):
    assert (found["bfloat16"]["dtype"], found["bfloat16"]["max_model_len"]) == ("bfloat16", 300)
    assert (found["params"]["dtype"], found["params"]["max_model_len"]) == ("float32", 512)
    expected = logprobs_of(read_model(folders["model_a"]), PROBE_IDS)
    assert found["bfloat16"]["score"] == pytest.approx(expected, abs=0.3)


def test_a_worker_samples_with_the_version_it_is_told_to(found, folders, run):
    store, requests, _ = run
    references = TypeAdapter(list[GenerationRef]).validate_python(found["worker"]["references"])
    assert [reference.policy_version for reference in references] == [0, 1, 0]
    assert references[0].file.sha256 == references[2].file.sha256
    for reference, folder in zip(references[:2], ("model_a", "model_b"), strict=True):
        file = FileRef(path=reference.file.path, sha256=reference.file.sha256)
        shard = store.read_record(file, GeneratedShard)
        for group in shard.groups:
            sampled = [[c.token_ids, c.logprobs, c.finish_reason] for c in group.completions]
            assert_logprobs(
                folders[folder],
                sampled,
                requests[0].sampling,
                [list(group.prompt_ids)] * len(sampled),
            )
    assert "weights/v2" in found["worker"]["refusal"]


def test_vllm_takes_what_it_is_asked_on_a_gpu_so_that_kernels_repeat(found):
    inductor = found["kernels"]["inductor"]
    assert (inductor["combo_kernels"], inductor["deterministic"]) == (False, True)
    assert found["kernels"]["autotune"] is False
    assert found["kernels"]["split_k"] == 1, "an adapter's sums are not split"


def test_the_engine_keeps_quiet(found):
    """What is left on stderr is our own warning about the update made to fail."""
    lines = [line for line in found["stderr"].splitlines() if line.strip()]
    assert not [line for line in lines if "WARNING" in line or "Warning" in line]


# --- adapters -------------------------------------------------------------------------------------


def test_a_whole_model_between_two_adapters_changes_nothing(found, adapted, model_b):
    models = {**adapted, "whole": read_model(model_b)}
    loaded = found["adapters"]["loaded"]
    for name, (canary, sampled) in zip(ADAPTER_SYNCS, loaded, strict=True):
        assert canary.startswith("CorruptFileError" if name == "whole" else "none")
        greedy = PARAMS["greedy"]
        for prompt_ids, (tokens, logprobs, _) in zip(PROMPTS_IDS, sampled, strict=True):
            expected = completion_logprobs(models[name], prompt_ids, tokens, greedy)
            assert logprobs == pytest.approx(expected, abs=1e-4)
    assert loaded[1] == loaded[3]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("new, not given", r"WeightsMismatchError: .*v0 .other or missing: model\.layers"),
        ("a tensor left out", "EngineError: vLLM does not take the adapter"),
        ("other shape", r"WeightsMismatchError: .*v3 .other or missing: model\.layers"),
    ],
)
def test_an_adapter_that_is_not_the_one_asked_for_is_refused(found, fault, said):
    assert re.search(said, found["adapters"]["faults"][fault])


def test_shapes_are_compared_by_name(folders):
    wanted = tensor_shapes(folders["model_a"])
    check_shapes(wanted, wanted, tied=True, folder=folders["model_a"])
    with_head = {**wanted, "lm_head.weight": (77, 64)}
    check_shapes(with_head, wanted, tied=True, folder=folders["model_a"])
    with pytest.raises(EngineError, match=r"lm_head\.weight"):
        check_shapes(with_head, wanted, tied=False, folder=folders["model_a"])
    fewer = {name: shape for name, shape in wanted.items() if "norm" not in name}
    with pytest.raises(EngineError):
        check_shapes(fewer, wanted, tied=True, folder=folders["model_a"])
