"""A teacher that vLLM computes, in a process of another interpreter, beside one by transformers."""

import base64

import numpy
import pytest

from mortal_steps.config import ComputeConfig, ModelConfig, RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.hosts import process as host_process
from mortal_steps.rewards.calling.calls import CallFailure, arguments_of
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.scoring.assignments import assign
from mortal_steps.rewards.teacher_model import TeacherModel
from mortal_steps.rewards.token_logprobs import unpacked
from tests.support.parity.models import build
from tests.support.refused import refused
from tests.support.rewards.calling import STATE
from tests.support.rewards.shards import make_shard
from tests.support.rollout.fixtures import vllm_python  # noqa: F401
from tests.support.rollout.vllm_forks import vllm_forks

pytestmark = pytest.mark.vllm
NUM_TOKENS, PADDED, CONTEXT = 77, 96, 64
NAME = "teacher-main"
TOLERANCE = 2e-5
"""Nats between two engines in float32."""


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """A model whose embeddings are padded beyond the tokens of its tokenizer, and some of whose
    likeliest tokens are padding."""
    folder = tmp_path_factory.mktemp("teacher")
    sizes = {"hidden_size": 64, "head_dim": 32, "vocab_size": PADDED}
    build("llama", folder, **sizes, max_position_embeddings=CONTEXT)
    return TeacherTerm(
        name=NAME,
        teacher="main",
        model=ModelConfig(name_or_path=str(folder)),
        engine="vllm",
        device="cpu",
        batch_size=1,
        threads=1,
        temperature=0.7,
        top_k=5,
        column=None,
    )


def host_of(term, run_dir, python):
    (assignment,) = assign(
        RewardsConfig().model_copy(update={"terms": (term,)}),
        compute=ComputeConfig.model_validate({"local": {"rollout": {"python": python}}}),
        gym_rows=False,
        template_options={},
        run_dir=run_dir,
        before_start=lambda: None,
    )
    (host,) = assignment.hosts
    return host


@pytest.fixture(scope="module")
def host(term, tmp_path_factory, vllm_python):  # noqa: F811
    host = host_of(term, tmp_path_factory.mktemp("run"), vllm_python)
    yield host
    host.close()


def said(host, *groups):
    arguments = arguments_of(make_shard(*groups).groups, STATE, of_prompts=True)
    outcome = host.call([NAME], arguments, timeout_s=60.0)[NAME]
    assert not isinstance(outcome, CallFailure), outcome
    return [base64.b64decode(each) for each in outcome.teacher_logprobs]


def by_transformers(term, *groups):
    found = []
    TeacherModel(term.model_copy(update={"engine": "transformers"}))(
        prompt_ids=[[3, 4, 30]] * sum(map(len, groups)),
        completion_ids=[
            completion.token_ids
            for group in make_shard(*groups).groups
            for completion in group.completions
        ],
        log_teacher=found.extend,
        log_metric=lambda name, value: None,
    )
    return [base64.b64decode(each) for each in found]


def test_it_says_what_transformers_does(host, term):
    groups = ("ba", "b" * 20, ""), ("fedcba",)
    pairs = zip(said(host, *groups), by_transformers(term, *groups), strict=True)
    for mine, theirs in ((unpacked(one), unpacked(other)) for one, other in pairs):
        for name in ("sampled_T", "top_TK"):
            difference = numpy.abs(getattr(mine, name) - getattr(theirs, name))
            assert difference.shape == getattr(theirs, name).shape
            assert difference.max() < TOLERANCE
        assert mine.top_ids_TK.max() < NUM_TOKENS
        assert (mine.top_ids_TK == theirs.top_ids_TK).all()


def test_what_it_says_depends_on_the_tokens_alone(host):
    (alone,) = said(host, ("fedcba",))
    among = said(host, ("b" * 20, "fedcba"), ("fedcba",))
    assert among[1] == among[2] == alone


def test_more_tokens_than_it_takes_are_named(host):
    """vLLM samples one behind them."""
    fitting = CONTEXT - 1 - len([3, 4, 30]) - 1  # each completion ends with a token of its own
    said(host, ("b" * fitting,))
    with refused(RewardError, f"{CONTEXT} tokens", f"takes {CONTEXT - 1}"):
        said(host, ("b" * (fitting + 1),))


def test_an_option_that_vllm_has_not_is_named(term, tmp_path, vllm_python, monkeypatch):  # noqa: F811
    monkeypatch.setattr(host_process, "Child", vllm_forks().child)
    unknown = term.model_copy(update={"engine_options": {"no_such_option": 1}})
    told = ("[algorithm.teachers.main]", "no_such_option", "teachers.main.engine_options")
    with refused(RewardError, *told):
        host_of(unknown, tmp_path, vllm_python).start()
