"""`algorithm.type = "atropos"`: its loss is what one computes by hand."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from mortal_steps.atropos.groups import Group, sequences_of
from mortal_steps.errors import ConfigError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.scored_groups import clipped_loss, padded
from mortal_steps.policy.batches import RowBatch
from mortal_steps.policy.checks import check_options
from mortal_steps.types import Problem
from tests.support.atropos.groups import make_group
from tests.support.policy.rollouts import make_config

RATE, CLIP, STEPS = 1e-3, 0.2, 3
EPSILON = 1e-4
"""Of Adam: with its own, what rounds in a gradient near 0 decides the sign of a whole step."""


def fixed_batches():
    """Groups of several sizes, with all that an environment may say of them, 16 sequences a
    batch."""
    for step in range(STEPS):
        base = 10 * step
        lengths = [len(tokens) for tokens in make_group(base + 2)["tokens"]]
        by_token = [[0.1 * place - 0.3 for place in range(length)] for length in lengths]
        yield [
            make_group(base),
            make_group(base + 1, group_overrides={"temperature": 0.7}),
            make_group(base + 2, advantages=by_token, generation_params={"temperature": 1.3}),
            make_group(base + 3, size=1, scores=[0.4]),
            make_group(base + 4, size=1, inference_logprobs=None, scores=[-0.5]),
            make_group(base + 5, size=2, overrides=[{"set_advantage_to_zero": True}, {}]),
        ]


def by_hand(model, groups, micro_batches):
    """Add up the gradients of a batch, one sequence at a time and without padding; return the
    loss."""
    losses = []
    for group in groups:
        size, scores = len(group["tokens"]), group["scores"]
        mean = sum(scores) / size
        deviation = math.sqrt(sum((score - mean) ** 2 for score in scores) / size)
        for i, tokens in enumerate(group["tokens"]):
            override = (group["overrides"] or [{}] * size)[i]
            levels = [override, group["generation_params"] or {}, group["group_overrides"] or {}]
            heat = next((each["temperature"] for each in levels if "temperature" in each), 1.0)
            advantage = scores[0] if size == 1 else (scores[i] - mean) / max(deviation, 1e-8)
            logits = model(torch.tensor([tokens])).logits[0]
            terms = []
            for place in range(1, len(tokens)):
                if group["masks"][i][place] == -100:
                    continue
                logprob = (logits[place - 1] / heat).log_softmax(-1)[tokens[place]]
                known = group["inference_logprobs"]
                old = logprob.detach() if known is None else torch.tensor(known[i][place])
                gain = group["advantages"][i][place] if group["advantages"] else advantage
                gain = 0.0 if override.get("set_advantage_to_zero") else gain
                ratio = (logprob - old).exp()
                terms.append(torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain))
            losses.append(-torch.stack(terms).mean())
    per_batch = torch.stack(losses).view(micro_batches, -1).mean(1)
    loss = per_batch.sum() / micro_batches
    loss.backward()
    return loss.item()


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_losses_and_weights_are_those_computed_by_hand(model_path, tmp_path, micro_batches):
    config = make_config(
        algorithm={"type": "atropos", "clip_eps": CLIP},
        learning_rate=RATE,
        gradient_accumulation_steps=micro_batches,
        trl={"lr_scheduler_type": "constant", "adam_epsilon": EPSILON},
    )
    stepper = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer, model_path=model_path, num_steps=STEPS, output_dir=tmp_path
    )
    stepper.begin()
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0)
    for step, groups in enumerate(fixed_batches()):
        rows = [Problem(id=str(n), prompt="", columns=group) for n, group in enumerate(groups)]
        metrics = stepper.train_step(RowBatch(step=step, rows=rows), seed=step)
        loss = by_hand(model, groups, micro_batches)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scores = [score for group in groups for score in group["scores"]]
        # TRL rounds what it logs.
        assert metrics["loss"] == pytest.approx(loss, abs=2e-6)
        assert metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
        assert metrics["reward"] == pytest.approx(sum(scores) / len(scores), rel=1e-5)
        masks = [mask for group in groups for row in group["masks"] for mask in row]
        assert metrics["num_trained_tokens"] == sum(mask != -100 for mask in masks)
    stepper.save_final(tmp_path / "final")
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "final", dtype=torch.float32)
    for (name, mine), theirs in zip(model.named_parameters(), trained.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=2e-6), name


def test_a_token_that_the_sampler_held_for_impossible_leaves_the_loss_finite():
    groups = [make_group(0, size=2, inference_logprobs=None, scores=[1.0, 0.0])]
    groups[0]["inference_logprobs"] = [[-9999.0] * len(row) for row in groups[0]["tokens"]]
    inputs = padded([each for one in groups for each in sequences_of(Group(**one))], "cpu")
    logprobs = torch.full_like(inputs["logprobs"], -2.0, requires_grad=True)
    loss, measured = clipped_loss(logprobs, inputs, CLIP)
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(logprobs.grad).all()
    assert measured["sampling/sampling_logp_difference/max"] == pytest.approx(9997.0)


def test_a_penalty_that_the_loss_does_not_have_is_refused():
    config = make_config(algorithm={"type": "atropos"}, beta=0.1)
    with pytest.raises(ConfigError, match=r"training\.beta = 0\.1: .*no KL penalty"):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_options_of_other_losses_are_said_to_change_nothing():
    options = {"epsilon": 0.3, "trl": {"entropy_coef": 0.1, "max_grad_norm": 0.5}}
    config = make_config(model={"new": {}}, algorithm={"type": "atropos"}, **options)
    idle = algorithm_of(config.algorithm).check(Plan(config).trainer)
    assert [each.partition(" ")[0] for each in idle] == [
        "training.epsilon",
        "training.trl.entropy_coef",
    ]
    assert "changes nothing" in idle[0] and "algorithm.clip_eps" in idle[0]


def test_groups_of_any_size_are_not_dealt_out_to_ranks():
    config = make_config(model={"new": {}}, algorithm={"type": "atropos"}, ranks=2)
    with pytest.raises(ConfigError, match=r"ranks = 2: .*'atropos' trains in one process"):
        check_options(Plan(config).actor, train=[], held_out=[], supplied="Rows", sampled=8)
