"""A teacher that vLLM computes, on a CPU, beside the same by transformers."""

import base64
import sys

import numpy
import pytest

from mortal_steps.config import ModelConfig, NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.token_logprobs import unpacked
from tests.support.rollout.asked import asked

SHARD = {
    "prompt_ids": [[3, 4, 5], [6], [3, 4, 5, 7, 8, 9, 10], [3, 4, 5]],
    "completion_ids": [[6, 7, 1], [9, 10, 11, 12, 1], [20], [6, 7, 1]],
    "who": ["main", "main", "other", "main"],
}
ALONE = {"prompt_ids": [[3, 4, 5]], "completion_ids": [[6, 7, 1]], "who": ["main"]}
TOLERANCE = 1e-4
"""Nats, as between the samplers of both."""

pytestmark = pytest.mark.vllm


def test_both_engines_say_the_same(vllm_python, tmp_path):
    build_model(tmp_path, NewModelConfig(hidden_size=64, num_layers=2), seed=3)
    term = TeacherTerm(
        name="teacher-main",
        teacher="main",
        model=ModelConfig(name_or_path=str(tmp_path)),
        engine="transformers",
        engine_options={"max_model_len": 64},
        device="cpu",
        batch_size=1,
        threads=1,
        temperature=1.0,
        top_k=6,
        column="who",
    )
    found, expected = [], []
    for python, engine, said in ((vllm_python, "vllm", found), (None, "transformers", expected)):
        job = {
            "term": term.model_copy(update={"engine": engine}).model_dump(mode="json"),
            "shards": [SHARD, ALONE, SHARD],
        }
        answers, _ = asked(python or sys.executable, "tests.support.rewards.teaching", job)
        said += answers
    assert found[0] == found[2] and [each is None for each in found[0]] == [
        False,
        False,
        True,
        False,
    ]
    for theirs, ours in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
        if theirs is None or ours is None:
            assert theirs is ours
            continue
        one, other = (unpacked(base64.b64decode(each)) for each in (theirs, ours))
        numpy.testing.assert_allclose(one.sampled_T, other.sampled_T, atol=TOLERANCE)
        numpy.testing.assert_allclose(one.top_TK, other.top_TK, atol=TOLERANCE)
        assert one.top_ids_TK.tolist() == other.top_ids_TK.tolist()
