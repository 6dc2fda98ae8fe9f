"""Distillation from records of a teacher, stepped, against stock
`ServerDistillationTrainer.train()` whose client returns the records: the same bits, no tolerance.

As in test_trl_parity.py: the trainable weights after every optimizer update, and every metric but
those of the clock.
"""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import StoreError
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.rewards.token_logprobs import TokenLogprobs, unpacked
from tests.support.policy.parity import check_parity, differ, run_stepped
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.refused import refused

ALONE = {"num_generations": 1}


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """A model that is wider and deeper than the student."""
    folder = tmp_path_factory.mktemp("teacher")
    build_model(folder, NewModelConfig(hidden_size=96, num_layers=3), seed=1)
    return str(folder)


def taught(teacher, *, settings=None, **changes):
    algorithm = {"type": "opd", "teachers": {"main": teacher}, **(settings or {})}
    return {"algorithm": algorithm, **ALONE, **changes}


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {}),
        ({"beta": 0.0, "loss_top_k": 8}, {"gradient_accumulation_steps": 2}),
        ({"beta": 0.0, "loss_top_k": 3, "loss_add_tail": False}, {"num_generations": 2}),
        ({"beta": 0.3}, {"rollout": {"temperature": 0.7}, "use_lora": True}),
        ({"beta": 0.0}, {"trl": {"bf16": True, "max_grad_norm": 0.1}}),
    ],
    ids=str,
)
def test_it_is_stock_trls(model_path, teacher, tmp_path, settings, options):
    check_parity(model_path, tmp_path, **taught(teacher, settings=settings, **options))


def test_each_row_is_learned_from_its_own_teacher(model_path, teacher, tmp_path):
    settings = {
        "teachers": {"main": teacher, "other": {"name_or_path": model_path, "batch_size": 3}},
        "teacher_column": "taught_by",
    }
    both = check_parity(model_path, tmp_path, **taught(teacher, settings=settings))
    config = make_config(**taught(teacher))
    one = run_stepped(config, model_path, tmp_path / "one", [make_batch(config, 0)])
    assert differ(one.weights[0], both.weights[0])


def test_a_bit_of_a_record_shows(model_path, teacher, tmp_path):
    """One log-probability, by what float32 tells apart."""
    config = make_config(**taught(teacher))
    batch = make_batch(config, 0)
    nudged = dataclasses.replace(batch, groups=[_nudged(batch.groups[0]), *batch.groups[1:]])
    one, other = (
        run_stepped(config, model_path, tmp_path / name, [given])
        for name, given in {"said": batch, "nudged": nudged}.items()
    )
    assert differ(one.weights[0], other.weights[0])


def _nudged(group):
    said = unpacked(group.rollouts[0].teacher_logprobs)
    sampled = said.sampled_T.copy()
    sampled[0] += 1e-4
    other = TokenLogprobs(sampled_T=sampled, top_TK=said.top_TK, top_ids_TK=said.top_ids_TK)
    rollout = dataclasses.replace(group.rollouts[0], teacher_logprobs=other.packed())
    return dataclasses.replace(group, rollouts=[rollout, *group.rollouts[1:]])


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_teacher_says_what_its_model_computes(teacher, batch_size):
    config = make_config(
        **taught(
            teacher,
            settings={
                "teachers": {"main": {"name_or_path": teacher, "batch_size": batch_size}},
                "beta": 0.0,
                "loss_top_k": 5,
            },
            num_generations=5,
            rollout={"temperature": 0.7},
        )
    )
    model = AutoModelForCausalLM.from_pretrained(teacher).eval()
    for group in make_batch(config, 0).groups:
        for rollout in group.rollouts:
            said = unpacked(rollout.teacher_logprobs)
            ids = torch.tensor([[*group.prompt_ids, *rollout.completion.token_ids]])
            with torch.no_grad():
                logits = model(ids).logits[0, len(group.prompt_ids) - 1 : -1]
            expected = (logits / 0.7).log_softmax(-1)
            top = expected.topk(5)
            sampled = expected.gather(1, ids[0, len(group.prompt_ids) :, None])[:, 0]
            torch.testing.assert_close(torch.tensor(said.sampled_T), sampled)
            torch.testing.assert_close(torch.tensor(said.top_TK), top.values)
            assert said.top_ids_TK.tolist() == top.indices.tolist()


def test_what_no_teacher_spoke_of_is_not_learned_from(model_path, teacher, tmp_path):
    config = make_config(**taught(teacher))
    batch = make_batch(config, 0)
    rollouts = [dataclasses.replace(batch.groups[1].rollouts[0], teacher_logprobs=None)]
    silent = dataclasses.replace(batch.groups[1], rollouts=rollouts)
    batch = dataclasses.replace(batch, groups=[batch.groups[0], silent, *batch.groups[2:]])
    with refused(StoreError, "no record", batch.groups[1].problem.id):
        run_stepped(config, model_path, tmp_path, [batch])
