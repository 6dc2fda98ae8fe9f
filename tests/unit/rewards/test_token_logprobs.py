"""What a teacher said, packed into a record and read again: the same bits."""

import numpy

from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, CallScores, arguments_of
from mortal_steps.rewards.scoring.jobs import Part
from mortal_steps.rewards.scoring.scorer import _said_by_teachers
from mortal_steps.rewards.token_logprobs import TokenLogprobs, bytes_per_token, unpacked
from mortal_steps.store import RunStore
from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    PolicyVersion,
    Problem,
    RewardedShard,
)

THREE_TOKENS = TokenLogprobs(
    sampled_T=numpy.array([-0.1, -numpy.inf, -1e-7], "f4"),
    top_TK=numpy.array([[-0.1, -3.7], [-0.4, -2.3], [-1e-7, -20.0]], "f4"),
    top_ids_TK=numpy.array([[7, 151_935], [5, 6], [1, 0]]),
)


def test_every_bit_comes_back():
    content = THREE_TOKENS.packed()
    assert len(content) == 4 + 3 * bytes_per_token(2) == 4 + 3 * (4 + 8 * 2)
    found = unpacked(content)
    for name in ("sampled_T", "top_TK", "top_ids_TK"):
        assert getattr(found, name).tolist() == getattr(THREE_TOKENS, name).tolist()
    assert found.cut(1).top_ids_TK.tolist() == [[7, 151_935]]
    assert unpacked(found.cut(0).packed()).sampled_T.tolist() == []


def test_a_shard_keeps_it_and_is_as_before_without(tmp_path):
    store = RunStore(tmp_path)
    shard = RewardedShard(
        step=0, shard=0, generation_sha256="0" * 64, rewards=[[{"exact": 1.0}, {"exact": None}]]
    )
    taught = RewardedShard(
        step=0,
        shard=0,
        generation_sha256="0" * 64,
        rewards=shard.rewards,
        teacher_logprobs=[THREE_TOKENS.packed(), None],
    )
    for number, body in enumerate((shard, taught)):
        ref = store.write_record(f"rewards-{number}.parquet", body, RewardedShard)
        found = store.read_record(ref, RewardedShard)
        assert list(found.teacher_logprobs) == list(body.teacher_logprobs)
        assert found.rewards == body.rewards
    without = store.path("rewards-0.parquet").read_bytes()
    assert b"teacher_logprobs" not in without


def test_a_teacher_reads_the_tokens_of_the_prompt_that_each_completion_answers():
    usual = {"text": "", "finish_reason": "stop", "seed": 0, "policy_version": PolicyVersion(0)}
    made = [
        Completion(token_ids=[1], logprobs=[0.0], prompt_ids=ids, **usual) for ids in ((), (7, 8))
    ]
    problem = Problem(id="train-0", prompt="a")
    group = GeneratedGroup(problem=problem, prompt_ids=[3], completions=made)
    state = TrainerState(global_step=0, max_steps=1)
    assert arguments_of([group], state).prompt_ids is None
    found = arguments_of([group], state, of_prompts=True).prompt_ids
    assert [list(ids) for ids in found] == [[3], [7, 8]]


def test_each_completion_has_what_its_own_teacher_said():
    completion = Completion(
        token_ids=[1],
        logprobs=[0.0],
        text="",
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
    )
    group = GeneratedGroup(
        problem=Problem(id="train-0", prompt="a"), prompt_ids=[3], completions=[completion]
    )
    failed = CallFailure(kind="timeout", message="", remedy="")

    def part(outcome):
        return Part(groups=[group], outcome=outcome)

    def scores(*said):
        return CallScores(scores=[None], metrics={}, extra={}, teacher_logprobs=said)

    said = _said_by_teachers(
        {
            "exact": [part(scores()), part(scores()), part(scores())],
            "teacher-a": [part(scores("AAA=")), part(scores(None)), part(failed)],
            "teacher-b": [part(scores(None)), part(scores("AAAA")), part(scores(None))],
        }
    )
    assert said == [b"\0\0", b"\0\0\0", None]
    assert _said_by_teachers({"exact": [part(scores())]}) == []
