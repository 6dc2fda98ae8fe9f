"""mortal_steps.plan.held_out, and what `[evaluation.sets]` accepts."""

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.plan.held_out import HeldOutSets, dealt
from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.schedule import completion_seeds
from mortal_steps.types import (
    FileRef,
    GenerateRequest,
    PolicyVersion,
    Problem,
    RewardedShard,
    SamplingParams,
    WeightsRef,
)
from tests.support.refused import refused

SOURCES = {"easy": "e.jsonl", "hard": "h.jsonl", "last": "l.jsonl"}


def config_of(evaluation, **others):
    data = {"source": "x.jsonl", "eval_sets": SOURCES}
    rewards = {"functions": ["r.py:right"]}
    return parse_config({"data": data, "rewards": rewards, "evaluation": evaluation, **others})


def sets_of(evaluation, sizes, num_problems=None):
    config = config_of(evaluation)
    return HeldOutSets(
        rewards=config.rewards,
        evaluation=config.evaluation,
        sizes=sizes,
        num_problems=sum(sizes.values()) if num_problems is None else num_problems,
        num_steps=10,
    )


def shapes(held_out, step):
    return [(part.name, part.start, part.stop) for part in held_out.parts(step)]


def test_sets_without_settings_of_their_own_are_one_part_as_before():
    assert shapes(sets_of({}, {}, 7), 3) == [("", 0, 7)]
    (part,) = sets_of({}, {"easy": 2, "hard": 3}).parts(3)
    assert (part.start, part.stop, part.sets) == (0, 5, {"easy": 2, "hard": 3})
    assert part.bounds(2) == [(0, 2), (2, 5)]


def test_a_set_with_settings_is_a_part_between_the_others():
    held_out = sets_of(
        {"sets": {"hard": {"num_problems": 2, "functions": ["j.py:strict"]}}},
        {"easy": 3, "hard": 4, "last": 2},
    )
    assert shapes(held_out, 3) == [("", 0, 3), ("hard", 3, 5), ("", 7, 9)]
    assert held_out.num_shards(3, 2) == 6
    assert held_out.parts(3)[1].bounds(2) == [(3, 4), (4, 5)]
    assert held_out.parts(3)[1].rewards.functions == ("j.py:strict",)
    assert held_out.parts(3)[0].rewards.functions == ("r.py:right",)


def test_a_set_may_be_in_some_evaluations_alone():
    settings = {"eval_steps": 2, "sets": {"hard": {"eval_steps": 4, "temperature": 1.0}}}
    held_out = sets_of(settings, {"hard": 4, "last": 2})
    due = [step for step in range(0, 11, 2) if shapes(held_out, step)[0][0] == "hard"]
    assert due == [0, 4, 8, 10]
    assert held_out.size(2) == 2


def test_the_shards_of_parts_without_a_name_are_dealt_out_as_one():
    held_out = sets_of({"sets": {"hard": {}}}, {"easy": 3, "hard": 4, "last": 2})
    shards = [
        RewardedShard(step=1, shard=n, generation_sha256="", rewards=[[{}]] * size)
        for n, size in enumerate([1, 2, 2, 2, 1, 1])
    ]
    found = [
        (p.name, p.sets, [s.shard for s in its]) for p, its in dealt(held_out.parts(1), shards)
    ]
    assert found == [("", {"easy": 3, "last": 2}, [0, 1, 4, 5]), ("hard", {}, [2, 3])]


def test_what_is_left_out_is_that_of_all_evaluations(tmp_path):
    config = config_of(
        {
            "temperature": 0.5,
            "num_generations": 4,
            "sets": {"hard": {"top_p": 0.9}, "easy": {"temperature": 1.0, "stop": ["x"]}},
        }
    )
    own = config.evaluation.problem_sets
    usual = config.eval_sampling
    assert own["hard"].sampling(usual) == SamplingParams(
        max_tokens=usual.max_tokens, temperature=0.5, top_p=0.9, stop=()
    )
    assert own["easy"].sampling(usual).stop == ("x",)
    assert own["hard"].rewards(config.eval_rewards) is config.eval_rewards
    (tmp_path / "copy.toml").write_text(dump_toml(config))
    assert load_config(tmp_path / "copy.toml").fingerprint() == config.fingerprint()


def test_rewards_in_full_score_a_set():
    terms = [{"type": "exact", "column": "wanted"}]
    config = config_of({"sets": {"hard": {"terms": terms}}})
    assert config.set_rewards["hard"].all_terms[0].type == "exact"
    assert isinstance(config.set_rewards["hard"], RewardsConfig)


def request_of(eval_set, step):
    return GenerateRequest(
        stage="evaluate",
        step=step,
        shard=0,
        problems=FileRef(path="x", sha256=""),
        start=0,
        stop=1,
        num_generations=2,
        sampling=SamplingParams(max_tokens=1),
        weights=WeightsRef(version=PolicyVersion(0), path="w", sha256=""),
        output="x",
        eval_set=eval_set,
    )


def test_only_a_set_with_settings_has_the_same_seeds_at_each_step():
    problems = [Problem(id="eval-hard-0", prompt="a", columns={})]
    seeds = {
        name: [completion_seeds(request_of(name, step), problems, 7) for step in (3, 4)]
        for name in ("", "hard")
    }
    assert seeds["hard"][0] == seeds["hard"][1]
    assert seeds[""][0] != seeds[""][1]


def test_a_configuration_without_sets_has_the_fingerprint_that_it_always_had():
    assert RunConfig().fingerprint() == config_free_of_sets()


def config_free_of_sets():
    chosen = RunConfig().identity(defaults=False)
    assert "sets" not in chosen.get("evaluation", {})
    assert "decides" not in chosen.get("evaluation", {})
    return RunConfig().fingerprint()


@pytest.mark.parametrize(
    ("evaluation", "told"),
    [
        ({"sets": {"hrad": {}}}, ["evaluation.sets.hrad", "did you mean 'hard'"]),
        ({"sets": {"easy": {"type": "a:B"}}}, ["evaluation.sets.easy", "data.eval_sets"]),
        ({"sets": {"x": {"type": "lm_evl"}}}, ["evaluation.sets.x", "did you mean 'lm_eval'"]),
        ({"sets": {"hard": {"temprature": 1}}}, ["evaluation.sets.hard.temprature"]),
        ({"decides": "hrad"}, ["evaluation.decides = 'hrad'", "did you mean 'hard'"]),
        ({"sets": {"hard": {"num_generations": 2}}}, ["evaluation.sets.hard.temperature"]),
        ({"sets": {name: {} for name in SOURCES}}, ["evaluation.decides = 'easy'"]),
        (
            {"eval_steps": 2, "sets": {"hard": {"eval_steps": 3}}},
            ["sets.hard.eval_steps = 3", "evaluation.eval_steps = 2"],
        ),
        (
            {"decides": "hard", "sets": {"hard": {"eval_steps": 2}}},
            ["decides = 'hard'", "sets.hard.eval_steps"],
        ),
        ({"sets": {"hard": {"max_tokens": 9999}}}, ["evaluation.sets.hard.max_tokens = 9999"]),
    ],
)
def test_mistakes_are_named(evaluation, told):
    with refused(ConfigError, *told):
        config_of(evaluation)


def test_until_looks_at_any_score_of_a_set():
    def until(metric):
        sets = {"hard": {"functions": ["j.py:strict"]}, "bench": {"type": "b.py:Bench"}}
        goal = {"metric": metric, "goal": 0.5}
        return config_of({"sets": sets}, training={"until": goal})

    until("eval_hard_rewards/strict/mean")
    until("eval_easy_reward")
    until("eval_bench_rewards/whatever/mean")
    with refused(ConfigError, "eval_hrd_reward", "did you mean eval_hard_reward"):
        until("eval_hrd_reward")


def test_a_harness_alone_makes_evaluations():
    config = parse_config(
        {
            "data": {"source": "x.jsonl"},
            "evaluation": {"sets": {"bench": {"type": "b.py:Bench"}}, "decides": "bench"},
        }
    )
    assert config.evaluates and config.identity()["evaluation"]["eval_steps"] is None
