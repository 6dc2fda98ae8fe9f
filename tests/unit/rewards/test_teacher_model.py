"""A teacher at work: which rows it speaks of, which tokens it names, and what it cannot do."""

import base64

import pytest
from safetensors.torch import load_file, save_file

from mortal_steps.config import ModelConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teacher_model import TeacherModel
from mortal_steps.rewards.token_logprobs import unpacked
from tests.support.parity.models import build
from tests.support.refused import refused

NUM_TOKENS, PADDED = 77, 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose embeddings are padded beyond the tokens of its tokenizer."""
    found = tmp_path_factory.mktemp("teacher")
    build("llama", found, vocab_size=PADDED, max_position_embeddings=32)
    return found


def teacher(folder, **changes):
    usual = {
        "name": "teacher-main",
        "teacher": "main",
        "model": ModelConfig(name_or_path=str(folder)),
        "device": "cpu",
        "batch_size": 1,
        "threads": 1,
        "temperature": 1.0,
        "top_k": 1,
        "column": None,
    }
    return TeacherModel(TeacherTerm(**{**usual, **changes}))


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
    with refused(RewardError, "33 tokens", "[algorithm.teachers.main]", "takes 32"):
        ask(teacher(folder), [[3] * 30], [[4, 5, 1]])


def test_weights_that_are_missing_are_not_made_up(folder, tmp_path):
    build("llama", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with refused(RewardError, "[algorithm.teachers.main]", "model.norm.weight"):
        teacher(tmp_path)
