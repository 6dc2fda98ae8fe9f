"""Whether a completion is truncated is what its record says, not what its last token is."""

import dataclasses
import pickle

import pytest
import torch

from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.endings import trained_ids
from mortal_steps.schedule import train_seed
from mortal_steps.types import Episode, Turn
from tests.support.policy.parity import run_stepped
from tests.support.policy.rollouts import EOS, MAX_COMPLETION_LENGTH, make_batch, make_config

STOPS = 40
"""Token of a string that ends completions."""
OTHER = 41
CLIPPED = "completions/clipped_ratio"
ALGORITHMS = [{}, {"type": "rloo"}]
MASKING = {"trl": {"mask_truncated_completions": True}}


def changed(batch, change):
    """Return the batch with other completions."""
    groups = [
        dataclasses.replace(
            group,
            rollouts=[
                dataclasses.replace(each, completion=change(each.completion))
                for each in group.rollouts
            ],
        )
        for group in batch.groups
    ]
    return dataclasses.replace(batch, groups=groups)


def ended_by_a_string(completion):
    """The completion with a stop string where it had its end token, and nowhere else."""
    ids = [OTHER if token == STOPS else token for token in completion.token_ids]
    ids[-1] = STOPS if ids[-1] == EOS else ids[-1]
    return dataclasses.replace(completion, token_ids=ids)


def unknown_end(completion):
    return dataclasses.replace(completion, finish_reason="length")


def metrics_of(config, model_path, folder, batch, end_ids):
    """Return what TRL logs of a step if it is told which tokens end a completion."""
    stepper = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=folder
    )
    stepper._trainer.eos_token_ids = end_ids
    stepper.begin()
    return stepper.train_step(batch, seed=train_seed(config.seed, batch.step))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["grpo", "rloo"])
def test_a_completion_that_ended_with_a_stop_string_is_none_that_was_cut(
    model_path, tmp_path, algorithm
):
    config = make_config(algorithm=algorithm, **MASKING)
    batch = changed(make_batch(config, 0), ended_by_a_string)
    (found,) = run_stepped(config, model_path, tmp_path, [batch]).metrics
    told = changed(batch, unknown_end), [EOS, STOPS]
    assert found == metrics_of(config, model_path, tmp_path, *told)
    cut = changed(batch, unknown_end), [EOS]
    assert found[CLIPPED] < metrics_of(config, model_path, tmp_path, *cut)[CLIPPED] == 1.0


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["grpo", "rloo"])
def test_where_all_ended_nothing_is_masked(model_path, tmp_path, algorithm):
    def ended(completion):
        kept = completion.token_ids[:MAX_COMPLETION_LENGTH]
        ids = [OTHER if token == EOS else token for token in kept]
        logprobs = completion.logprobs[: len(ids)]
        return dataclasses.replace(
            completion, token_ids=ids, logprobs=logprobs, finish_reason="stop"
        )

    plain = make_config(algorithm=algorithm)
    masking = make_config(algorithm=algorithm, **MASKING)
    batches = [changed(make_batch(plain, step), ended) for step in range(2)]
    found = run_stepped(masking, model_path, tmp_path / "masking", batches)
    expected = run_stepped(plain, model_path, tmp_path / "plain", batches)
    assert found.metrics == expected.metrics
    assert found.metrics[1]["grad_norm"] > 0
    for metrics in found.metrics:
        assert metrics[CLIPPED] == 0.0
        for which in ("mean", "min", "max"):
            length = metrics[f"completions/{which}_length"]
            assert metrics[f"completions/{which}_terminated_length"] == length


def completion_of(*token_ids, **changes):
    group = make_batch(make_config(), 0).groups[0]
    return dataclasses.replace(
        group.rollouts[0].completion,
        token_ids=token_ids,
        **{"finish_reason": "stop", **changes},
    )


def is_taken_for_ended(completion, most=MAX_COMPLETION_LENGTH):
    """Whether TRL takes it for one, of whose tokens none ends a sequence."""
    return trained_ids(completion, most, EOS)[-1] in [EOS, 0]


def test_what_has_ended():
    turn = Turn(start=0, stop=2, seed=1, finish_reason="stop", round=0)
    assert is_taken_for_ended(completion_of(5, 6, 7))
    assert is_taken_for_ended(completion_of(5, 6, 7, turns=(turn,))), "an environment's last word"
    episode = Episode(stop="max_iterations", num_calls=1, num_failed_calls=0)
    assert is_taken_for_ended(completion_of(5, 6, 7, episode=episode))


def test_what_was_cut():
    assert not is_taken_for_ended(completion_of(5, 6, 7, finish_reason="length"))
    assert not is_taken_for_ended(completion_of(5, 6, 7), most=2)
    turn = Turn(start=0, stop=2, seed=1, finish_reason="stop", round=0)
    no_room = Episode(stop="length", num_calls=1, num_failed_calls=0)
    assert not is_taken_for_ended(completion_of(5, 6, 7, turns=(turn,), episode=no_room))


def test_trls_own_judgement_of_a_last_token_stands():
    """Padding that was sampled last, and the end token of a turn after which nothing had room."""
    assert is_taken_for_ended(completion_of(5, 6, 0, finish_reason="length"))
    no_room = Episode(stop="length", num_calls=1, num_failed_calls=0)
    assert is_taken_for_ended(completion_of(5, 6, EOS, episode=no_room))


def test_tokens_stay_what_they_are():
    ids = trained_ids(completion_of(5, 6, 7), MAX_COMPLETION_LENGTH, EOS)
    assert torch.tensor(ids).tolist() == [5, 6, 7] and torch.tensor(ids).dtype == torch.int64
    assert int(ids[-1]) == 7 and f"{ids[-1]}" == "7" and hash(ids[-1]) == hash(7)
    assert ids == [5, 6, 7] and ids != [5, 6, 8] and ids[-1] != 0
    copied = pickle.loads(pickle.dumps(ids))
    assert copied[-1] == EOS and torch.equal(torch.tensor(copied), torch.tensor([5, 6, 7]))


def test_a_tokenizer_without_an_end_token_has_ended_completions_too():
    assert trained_ids(completion_of(5, 6, 7), MAX_COMPLETION_LENGTH, None)[-1] in [None, 0]
