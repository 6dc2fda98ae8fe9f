"""A teacher at work: which rows it speaks of, which tokens it names, and what it cannot do."""

import base64
import json
import shutil
from importlib.util import find_spec

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ModelError, RewardError
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teacher_model import TeacherModel
from mortal_steps.rewards.teachers import Teacher, find_tokenizer
from mortal_steps.rewards.token_logprobs import TokenLogprobs, unpacked
from tests.support.parity.models import build
from tests.support.refused import refused

NUM_TOKENS, PADDED = 77, 96
OWN = """
from transformers import LlamaForCausalLM


class Own(LlamaForCausalLM):
    def forward(self, input_ids, attention_mask, use_cache):
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        return super().forward(**given, use_cache=use_cache)
"""
"""A model whose code lies beside its weights, and which computes the logits of every token."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose embeddings are padded beyond the tokens of its tokenizer."""
    found = tmp_path_factory.mktemp("teacher")
    sizes = {"vocab_size": PADDED, "max_position_embeddings": 32}
    build("llama", found, **sizes, attention_dropout=1)  # which is off
    return found


def term(folder, *, dtype="float32", **changes):
    usual = {
        "name": "teacher-main",
        "teacher": "main",
        "model": ModelConfig(name_or_path=str(folder), dtype=dtype),
        "device": "cpu",
        "batch_size": 1,
        "threads": 1,
        "temperature": 1.0,
        "top_k": 1,
        "column": None,
    }
    return TeacherTerm(**{**usual, **changes})


def teacher(folder, **changes):
    return TeacherModel(term(folder, **changes))


def ask(model, prompt_ids, completion_ids, **columns):
    said, logged = [], []
    scores = model(
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        log_teacher=said.extend,
        log_metric=lambda name, value: logged.append((name, value)),
        **columns,
    )
    assert scores == [None] * len(prompt_ids)
    return [each and unpacked(base64.b64decode(each)) for each in said], logged


def test_it_speaks_of_its_own_rows(folder):
    given = [[3, 4], [5], [3, 4]], [[6, 7, 1], [8, 1], [9]]
    said, logged = ask(teacher(folder, column="who"), *given, who=["main", "other", "main"])
    assert [each and len(each.sampled_T) for each in said] == [3, None, 1]
    assert logged == [("teacher-main/logprob", float(said[row].sampled_T.mean())) for row in (0, 2)]


class Saying(Teacher):
    """One that knows what to say, and keeps how much it was asked at once."""

    def __init__(self, term, sampled):
        super().__init__(term)
        self.asked, self._sampled = [], sampled

    def say(self, sequences):
        self.asked.append(len(sequences))
        top = numpy.zeros((1, 1))
        sampled = numpy.array([self._sampled], "f4")
        return [TokenLogprobs(sampled_T=sampled, top_TK=top, top_ids_TK=top) for _ in sequences]


def test_it_computes_so_many_completions_at_once(folder):
    model = Saying(term(folder, batch_size=2, column="who"), -1.5)
    who = ["main", "other", "main", "main"]
    said, _ = ask(model, [[3]] * 4, [[4]] * 4, who=who)
    assert model.asked == [2, 1] and [each is None for each in said] == [False, True, False, False]


def test_a_token_that_it_holds_for_impossible_is_recorded_and_in_no_mean(folder):
    said, logged = ask(Saying(term(folder), -numpy.inf), [[3]], [[4]])
    assert said[0].sampled_T.tolist() == [-numpy.inf] and logged == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_it_says_what_its_model_computes_in_float32(folder, dtype, batch_size):
    prompts, completions = [[5], [3, 4, 9], [3] * 9], [[8] * 7, [6, 7, 1], [9]]
    asked = teacher(folder, dtype=dtype, batch_size=batch_size, temperature=0.7, top_k=3)
    said, _ = ask(asked, prompts, completions)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    for prompt, completion, each in zip(prompts, completions, said, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
        expected = (logits.float() / 0.7).log_softmax(-1)
        sampled = expected.gather(1, torch.tensor(completion)[:, None])[:, 0]
        close = {"rtol": 0, "atol": 1e-5 if dtype == "float32" or batch_size == 1 else 2e-2}
        torch.testing.assert_close(torch.tensor(each.sampled_T), sampled, **close)
        top = expected[:, :NUM_TOKENS].topk(3)
        torch.testing.assert_close(torch.tensor(each.top_TK), top.values, **close)
        assert batch_size > 1 or each.top_ids_TK.tolist() == top.indices.tolist()


def test_a_model_that_computes_all_logits_says_the_same(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "own.py").write_text(OWN)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "own.Own"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ModelConfig(name_or_path=str(tmp_path), trust_remote_code=True)
    given = [[3, 4, 5], [6, 5]], [[6, 7, 1], [8, 1]]
    own, _ = ask(teacher(folder, model=model, batch_size=2), *given)
    usual, _ = ask(teacher(folder, batch_size=2), *given)
    for one, other in zip(own, usual, strict=True):
        numpy.testing.assert_allclose(one.sampled_T, other.sampled_T, rtol=0, atol=1e-5)


def test_what_it_says_depends_on_the_tokens_alone(folder):
    model = teacher(folder, top_k=5)
    alone, _ = ask(model, [[3, 4]], [[6, 7, 1]])
    among, _ = ask(model, [[5], [3, 4], [3] * 9], [[8] * 7, [6, 7, 1], [9]])
    assert among[1].packed() == alone[0].packed()


def test_it_names_tokens_that_the_student_has(folder):
    said, _ = ask(teacher(folder, top_k=NUM_TOKENS), [[3, 4]], [[6, 7, 1]])
    assert sorted(said[0].top_ids_TK[0].tolist()) == list(range(NUM_TOKENS))
    with refused(RewardError, "algorithm.loss_top_k = 78", "vocabulary of 77"):
        teacher(folder, top_k=NUM_TOKENS + 1)


def test_more_tokens_than_it_takes_are_named(folder):
    ask(teacher(folder), [[3] * 29], [[4, 5, 1]])
    with refused(RewardError, "33 tokens", "[algorithm.teachers.main]", "takes 32"):
        ask(teacher(folder), [[3] * 30], [[4, 5, 1]])


def test_weights_that_are_missing_are_not_made_up(folder, tmp_path):
    build("llama", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with refused(RewardError, "[algorithm.teachers.main]", "model.norm.weight"):
        teacher(tmp_path)


def test_weights_that_are_no_numbers_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.norm.weight"].fill_(torch.nan)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with refused(RewardError, "[algorithm.teachers.main]", "no numbers", "another dtype"):
        ask(teacher(tmp_path), [[3, 4]], [[6, 7, 1]])


def test_weights_that_are_cut_off_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with refused(RewardError, "[algorithm.teachers.main]", str(tmp_path), "does not load"):
        teacher(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(folder):
    with refused(RewardError, "device = 'cuda'", "[algorithm.teachers.main]", "no GPU here"):
        teacher(folder, device="cuda")


def test_it_has_its_own_number_of_threads(folder):
    before = torch.get_num_threads()
    try:
        teacher(folder, threads=before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_weights_alone_have_no_tokenizer(tmp_path, family):
    """transformers makes one up for some families, with a token or two."""
    build(family, tmp_path)
    model = ModelConfig(name_or_path=str(tmp_path))
    assert len(find_tokenizer(model)) == NUM_TOKENS
    for file in tmp_path.glob("*token*"):
        file.unlink()
    assert find_tokenizer(model) is None


def test_a_model_that_is_gone_is_named_before_torch_is_imported(tmp_path):
    with refused(ModelError, "algorithm.teachers.main.name_or_path", str(tmp_path / "gone")):
        term(tmp_path / "gone").load()


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is here")
def test_an_engine_that_is_not_installed_is_named(folder):
    told = ("the rollout workers has no vllm", "[algorithm.teachers.main]", "local.rollout.python")
    with refused(RewardError, *told):
        term(folder, engine="vllm").load()
