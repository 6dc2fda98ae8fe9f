"""What a configuration is in which rows of a dataset are learned."""

import pytest

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.orchestration.checking.preflight import _Checks
from mortal_steps.orchestration.checking.resolve_defaults import resolved
from mortal_steps.orchestration.checking.reward_calls import check_scored_until, warn_of_no_prices
from mortal_steps.orchestration.checking.rows import (
    check_form,
    check_source,
    warn_of_idle_keys,
    warn_of_longer,
)
from mortal_steps.orchestration.trials.opening import judging_plan
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.rows.epochs import epochs_of, num_steps
from mortal_steps.runs.manifest import merit_of
from tests.support.refused import refused
from tests.support.rows import write_lines

SFT = {"algorithm": {"type": "sft"}, "data": {"source": "rows.jsonl"}}


def test_the_source_is_the_algorithms():
    config = parse_config(SFT)
    assert config.rollout.source == "rows"
    assert not config.samples_held_out
    assert parse_config({}).rollout.source == "generate"
    with refused(ConfigError, "rollout.source = 'generate'", "'sft' learns from 'rows'"):
        parse_config(SFT | {"rollout": {"source": "generate"}})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"data": {}}, ["data.source", "'sft'", "--dataset"]),
        ({"rewards": {"functions": ["a:b"]}}, ["[rewards] names 'a:b'", "leave it out"]),
        ({"data": {"source": "x.jsonl", "shuffle": False}}, ["data.shuffle", "'sequential'"]),
        ({"data": {"source": "x.jsonl", "on_long": "drop"}}, ["data.on_long", "max_length"]),
        ({"data": {"source": "x.jsonl", "eval_sets": {"train": "y"}}}, ["data.eval_sets.train"]),
    ],
)
def test_what_has_no_meaning_for_rows_is_refused(changed, named):
    config = parse_config(SFT | changed)
    with refused(ConfigError, *named):
        check_source(config.data, config.rewards, config.algorithm.type)


def test_keys_of_sampling_and_of_scores_that_change_nothing_are_told(caplog):
    sets = {"source": "x.jsonl", "eval_sets": {"easy": "y.jsonl", "hard": "z.jsonl"}}
    sampling = {"temperature": 0.7, "staleness": 1, "engine": "vllm", "sync_weights_every": 3}
    judged = {"decides": "hard", "functions": ["m:f"]}
    told = {"data": sets, "rollout": sampling, "evaluation": judged}
    for changed, number in ((told, 3), ({}, 0)):
        config = parse_config(SFT | changed)
        caplog.clear()
        warn_of_idle_keys(config.rollout, config.evaluation, "sft")
        assert len(caplog.messages) == number
        if number:
            sampled, scored, decided = caplog.messages
            assert (
                "evaluation.functions = ('m:f',): " in scored and "judged by their loss" in scored
            )
            assert "rollout.temperature = 0.7 and rollout.staleness = 1 and rollout." in sampled
            assert "rollout.sync_weights_every = 3: nothing" in sampled
            assert "evaluation.decides = 'hard'" in decided and "'eval_hard_loss'" in decided


def test_a_limit_for_sampling_that_cuts_no_row_is_told(caplog):
    for model, longest in (({}, 20_000), ({"max_model_len": 64}, 64)):
        warn_of_longer(parse_config(SFT | {"model": model}).model, longest)
    assert not caplog.messages
    warn_of_longer(parse_config(SFT | {"model": {"max_model_len": 64}}).model, 65)
    assert "model.max_model_len = 64 limits sampling alone" in caplog.text
    assert "65 tokens" in caplog.text


def test_rows_of_several_forms_are_told_by_what_trl_makes_of_them(caplog):
    """TRL would say KeyError: 'completion', and train completions that never end."""
    chat = [{"role": "user", "content": "a"}]
    with refused(DataError, "'completion', and they have none", "['prompt'] to learn from the co"):
        check_form({"prompt": "a", "messages": chat}, "text")
    check_form({"prompt": "a", "completion": "b", "text": None}, "text")
    check_form({"text": "a", "completion": "b"}, "text")
    check_form({"prompt": "a", "answer": "b"}, "text")
    check_form({"prompt": "a", "text": "b", "input_ids": [1], "labels": [1]}, "text")
    check_form({"prompt": chat, "completion": chat, "text": "b"}, "text")
    check_form({"prompt": "a", "completion": "b"}, "completion")
    assert not caplog.messages
    check_form({"prompt": "a", "completion": "b", "body": "ab"}, "body")
    assert "no completion ends with one" in caplog.text and "['body']" in caplog.text


def test_prompts_of_a_column_of_another_name_are_left_out_by_its_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chat, data = [{"role": "user", "content": "a"}], {"prompt_column": "question"}
    named = ["'question' of prompts", "leave data.prompt_column = 'question' out", "'messages'"]
    with refused(DataError, *named):
        check_form({"prompt": "a", "messages": chat}, "text", "question")
    source = write_lines("rows.jsonl", [{"question": "a", "messages": chat}])
    with refused(ConfigError, "'question', the prompt_column", "or leave data.prompt_column out"):
        parse_config(SFT | {"data": {"source": source, "drop_columns": ["question"]} | data})
    [row], _ = load_problems(DataConfig(source=source), 0, num_made=1, are_learned=True)
    check_form(row_of(row), "text")


def test_prompts_may_be_dropped_where_rows_are_learned_and_nowhere_else():
    data = {"source": "rows.jsonl", "drop_columns": ["prompt"]}
    assert parse_config(SFT | {"data": data}).data.drop_columns == ("prompt",)
    with refused(ConfigError, "drop_columns contains 'prompt', the prompt_column; take it out"):
        parse_config({"data": data})


def test_completions_that_nobody_scores_end_no_run():
    until = parse_config(SFT | {"training": {"until": {"max_rollouts": 9}}}).training.until
    with refused(ConfigError, "training.until.max_rollouts = 9", "'sft' as configured has none"):
        check_scored_until(until, "sft", scored=False)
    check_scored_until(until, "grpo", scored=True)


def judged(prices, **others):
    terms = [{"type": "judge", "model": "m", "prices": prices}, {"type": "exact"}]
    until = {"training": {"until": {"max_dollars": 5}}}
    return parse_config({"rewards": {"terms": terms}, **until, **others})


def test_dollars_that_nobody_counts_are_told_before_the_start(caplog):
    def warn(config):
        costs = config.compute.place.costs
        warn_of_no_prices(config.training.until, [config.rewards], place_costs=costs)

    warn(parse_config({"rewards": {"functions": ["m:f"]}}))
    warn(judged({"output": 0.6}))
    warn(judged({}, compute={"backend": "modal"}))
    assert not caplog.messages
    warn(judged({}))
    warn(judged({}, compute={"backend": "ray"}))
    assert len(caplog.messages) == 2
    assert "training.until.max_dollars = 5: no judge has `prices`" in caplog.messages[0]


FEW_TOKENS = {"seq_len": 64}
REPLAY = """
from mortal.extend import BatchSource

class Replay(BatchSource):
    roles = ()

    async def take(self, step): ...
"""


def test_completions_that_a_source_supplies_with_their_scores_may_end_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replay.py").write_text(REPLAY)

    def check_settings(source, source_options=None, **others):
        values = {
            "model": {"new": {"hidden_size": 8}},
            "rollout": {"source": source, "max_tokens": 4, "source_options": source_options or {}},
            "training": {"until": {"max_rollouts": 9}, "max_completion_length": 4},
            "rewards": {"functions": ["m:f"]},
        }
        _Checks(parse_config(values | others), print).settings()

    check_settings("generate")
    check_settings("replay.py:Replay")
    sets, fed = {"eval_source": "x.jsonl"}, {"source": "atropos", "source_options": FEW_TOKENS}
    with refused(ConfigError, "training.until.max_rollouts = 9", "as configured has none"):
        check_settings(**fed, data=sets, evaluation={"eval_steps": 1})


@pytest.mark.parametrize(
    ("training", "named"),
    [
        ({"num_generations": 8}, ["training.num_generations = 8", "'sft'", "leave it out"]),
        ({"beta": 0.1}, ["training.beta = 0.1", "'sft'"]),
        ({"batch_size": 6, "gradient_accumulation_steps": 4}, ["= 4 does not divide", "= 6 rows"]),
        (
            {"batch_size": 6, "gradient_accumulation_steps": 2, "ranks": 2},
            ["training.ranks = 2", "the 3 rows"],
        ),
        ({"ranks": 2, "trl": {"accelerator_config": {}}}, ["accelerator_config", "ranks = 2"]),
        ({"trl": {"dataset_kwargs": {"skip_prepare_dataset": True}}}, ["skip_prepare_dataset"]),
        ({"trl": {"top_entropy_quantile": 0.2}}, ["top_entropy_quantile", "SFT has none like it"]),
    ],
)
def test_options_that_do_not_fit_are_refused(training, named):
    config = parse_config(SFT | {"training": training})
    with refused(ConfigError, *named):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


@pytest.mark.parametrize(
    ("training", "named"),
    [
        ({"batch_size": 3, "gradient_accumulation_steps": 3}, ["micro-batches of one row"]),
        ({"trl": {"train_sampling_strategy": "random"}}, ["'random'", "in the order"]),
        (
            {"trl": {"precompute_ref_log_probs": True, "sync_ref_model": True}},
            ["precompute_ref_log_probs", "sync_ref_model", "leave one"],
        ),
    ],
)
def test_kto_compares_rows_of_a_micro_batch(training, named):
    config = parse_config(SFT | {"algorithm": {"type": "kto"}, "training": training})
    with refused(ConfigError, *named):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


@pytest.mark.parametrize(
    ("algorithm", "batch_size", "pieces"), [("sft", 16, 2), ("sft", 5, 1), ("grpo", 16, 8)]
)
def test_on_a_gpu_a_micro_batch_has_at_most_eight_rows(algorithm, batch_size, pieces):
    values = {"algorithm": {"type": algorithm}, "training": {"batch_size": batch_size}}
    settled = resolved(parse_config(SFT | values), cores=1, on_gpu=True)
    assert settled.training.gradient_accumulation_steps == pieces


def test_what_rows_are_compared_by_is_their_loss_and_of_users_rows_nothing():
    assert merit_of({"reward": None, "loss": 2.0, "num_prepared_rows": 4}) == -2.0
    assert merit_of({"loss": 2.0, "mean_token_accuracy": 0.1}) == -2.0
    assert merit_of({"reward": None, "loss": 2.0, "num_rows": 4}) is None
    assert merit_of({"reward": 0.5, "loss": 2.0}) == 0.5
    assert merit_of({"loss": float("nan")}) is None


@pytest.mark.parametrize(
    ("num_rows", "training", "per_epoch", "steps"),
    [
        (22, {"batch_size": 4, "num_epochs": 2}, 6, 12),
        (22, {"batch_size": 4, "gradient_accumulation_steps": 2, "num_epochs": 1.5}, 6, 9),
        (22, {"batch_size": 4, "num_epochs": 1, "trl": {"dataloader_drop_last": True}}, 5, 5),
        (
            17,
            {
                "batch_size": 6,
                "gradient_accumulation_steps": 2,
                "num_epochs": 1,
                "trl": {
                    "dataloader_drop_last": True,
                    "train_sampling_strategy": "batch_rebalance",
                },
            },
            2,
            2,
        ),
        (3, {"batch_size": 8, "num_epochs": 3}, 1, 3),
        (15, {"batch_size": 8, "ranks": 2, "num_epochs": 1}, 2, 2),
        (
            15,
            {
                "batch_size": 8,
                "ranks": 2,
                "num_epochs": 2,
                "trl": {"dataloader_drop_last": True},
            },
            1,
            2,
        ),
        (22, {"batch_size": 4, "max_steps": 7}, 6, 7),
    ],
)
def test_epochs_are_counted_as_transformers_does(num_rows, training, per_epoch, steps):
    chosen = parse_config(SFT | {"training": training}).training
    assert epochs_of(num_rows, chosen).steps_per_epoch == per_epoch
    assert num_steps(num_rows, chosen) == steps


def test_ranks_that_draw_orders_apart_are_told_of():
    training = {"ranks": 2, "trl": {"train_sampling_strategy": "group_by_length"}}
    config = parse_config(SFT | {"training": training})
    told = algorithm_of(config.algorithm).check(Plan(config).trainer)
    assert "some rows twice" in " ".join(told)


def test_what_learned_from_rows_is_compared_by_rewards_that_are_named():
    with refused(ConfigError, "'sft'", "--set evaluation.functions="):
        judging_plan(parse_config(SFT), 1)
