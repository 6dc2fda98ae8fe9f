"""What reaches TRL's ServerDistillationConfig, and what opd has not and says so."""

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.resolve_defaults import resolved, resolved_like
from mortal_steps.orchestration.trials.opening import judging_plan
from mortal_steps.plan.loader import dump_toml, load_stored_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.types import Problem
from tests.support.policy.rollouts import make_config
from tests.support.refused import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TWO = {"main": "org/large", "code": {"name_or_path": "org/coder", "device": "cuda:1"}}


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    build_model(folder, NewModelConfig(hidden_size=32, num_layers=1), seed=1)
    return str(folder)


def taught(teacher, *, settings=None, **changes):
    algorithm = {"type": "opd", "teachers": {"main": teacher}, **(settings or {})}
    usual = {"num_generations": 1, "model": {"new": {}}}
    return make_config(algorithm=algorithm, **{**usual, **changes})


def test_the_settings_reach_trl(teacher, tmp_path):
    config = taught(
        teacher,
        settings={"beta": 0.0, "loss_top_k": 4, "loss_add_tail": False},
        rollout={"temperature": 0.6, "staleness": 1},
        trl={"disable_dropout": True},
    )
    algorithm = algorithm_of(config.algorithm)
    assert algorithm.check(Plan(config).trainer) == ()
    built = build_options(Plan(config).trainer, algorithm, num_steps=10, output_dir=tmp_path)
    assert (built.beta, built.loss_top_k, built.loss_add_tail) == (0.0, 4, False)
    assert (built.temperature, built.disable_dropout, built.max_steps) == (0.6, True, 10)
    (tmp_path / "config.toml").write_text(dump_toml(config))  # as a run keeps it
    assert load_stored_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"beta": 0.1}, ("training.beta = 0.1", "algorithm.beta")),
        ({"loss_type": "grpo"}, ("training.loss_type = 'grpo'", "'opd' has one loss")),
        ({"trl": {"loss_top_k": 2}}, ("training.trl.loss_top_k is set by algorithm.loss_top_k",)),
        ({"trl": {"teacher_model_server_url": "x"}}, ("[algorithm.teachers.NAME]",)),
        ({"trl": {"reverse_kl_top_1_mode": "argmax"}}, ("'argmax'", "not supported by Server")),
        ({"trl": {"entropy_coef": 0.1}}, ("entropy_coef is an option of TRL's GRPO",)),
        ({"trl": {"lr_scheduler_type": "cosine_with_min_lr"}}, ("cosine_with_min_lr", "min_lr")),
    ],
    ids=str,
)
def test_what_opd_has_not_is_refused_by_name(teacher, changes, told):
    with refused((ConfigError, ValueError), *told):
        config = taught(teacher, **changes)
        algorithm_of(config.algorithm).check(Plan(config).trainer)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ("algorithm.teachers",)),
        ({"teachers": {}}, ("algorithm.teachers",)),
        ({"teachers": {"a/b": "org/x"}}, ("teachers.a/b", "letters, digits")),
        ({"teachers": {"main": {"name_or_path": "t", "devices": "x"}}}, ("devices", "device")),
        (
            {"teachers": {"main": {"name_or_path": "t", "engine_options": {"seed": 1}}}},
            ("teachers.main.engine_options", "engine = 'vllm'"),
        ),
        (
            {
                "teachers": {
                    "main": {
                        "name_or_path": "t",
                        "engine": "vllm",
                        "engine_options": {"logprobs_mode": "raw_logits"},
                    }
                }
            },
            ("teachers.main.engine_options.logprobs_mode", "leave it out"),
        ),
        (
            {
                "teachers": {
                    "main": {
                        "name_or_path": "t",
                        "engine": "vllm",
                        "engine_options": {"max_model_len": -1},
                    }
                }
            },
            ("teachers.main.engine_options.max_model_len = -1", "no number of tokens"),
        ),
        ({"teachers": TWO}, ("teacher_column", "main, code")),
        ({"teachers": {"main": "t"}, "loss_top_k": 8}, ("loss_top_k = 8", "beta = 0")),
        ({"teachers": {"main": "t"}, "loss_add_tail": False}, ("loss_add_tail", "is 0")),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(settings, told):
    with refused(ConfigError, *told):
        parse_config({"algorithm": {"type": "opd", **settings}})


def test_teachers_are_asked_whether_anything_scores_or_not():
    algorithm = {"algorithm": {"type": "opd", "teachers": TWO, "teacher_column": "kind"}}
    config = parse_config(algorithm)
    assert config.training_rewards is None and config.training.num_generations == 1
    assert Plan(config).workers.scores
    assert Plan(config).trainer.reward_weights == {"teacher-main": 0.0, "teacher-code": 0.0}
    assert Plan(config).code.model_folders[:2] == ("org/large", "org/coder")
    named = parse_config({**algorithm, "rewards": {"functions": ["rewards.py:exact"]}})
    weights = {"exact": 1.0, "teacher-main": 0.0, "teacher-code": 0.0}
    assert Plan(named).trainer.reward_weights == weights


def test_reward_workers_are_told_all_of_a_teacher():
    own = {"name_or_path": "org/large", "dtype": "bfloat16", "engine": "vllm", "device": "cuda:1"}
    own |= {"engine_options": {"max_model_len": 50}, "batch_size": 3, "threads": 2}
    values = {"type": "opd", "teachers": {"main": own, "code": "org/coder"}}
    values |= {"teacher_column": "kind", "beta": 0.0, "loss_top_k": 4}
    config = parse_config({"algorithm": values, "rollout": {"temperature": 0.7}})
    main, code = config.rewards_and_teachers.all_terms
    expected = {**own, "name": "teacher-main", "teacher": "main", "type": "teacher", "weight": 0.0}
    expected |= {"temperature": 0.7, "top_k": 4, "column": "kind"}
    model = {name: expected.pop(name) for name in ("name_or_path", "dtype")}
    told = main.model_dump()
    assert {name: told[name] for name in expected} == expected
    assert {name: told["model"][name] for name in model} == model
    assert (main.needs_engine, main.needs_gpu) == ("vllm", True)
    assert (code.needs_engine, code.needs_gpu, code.device) == (None, False, "cpu")
    assert (code.batch_size, code.threads, code.full_name) == (1, 1, "org/coder")
    assert Plan(config).scoring.needs_engine == "vllm"


def test_teachers_judge_nothing_that_is_held_out():
    values = {
        "algorithm": {"type": "opd", "teachers": {"main": "org/large"}},
        "rewards": {"functions": ["rewards.py:exact"]},
        "data": {"source": "rows.jsonl", "eval_samples": 4},
    }
    scoring = Plan(parse_config(values)).scoring
    assert [term.type for term in scoring.rewards.all_terms] == ["function", "teacher"]
    assert [term.type for term in scoring.eval_rewards.all_terms] == ["function"]
    judging = Plan(parse_config(values).of_finished_model()).scoring
    assert [term.type for term in judging.rewards.all_terms] == ["function"]
    del values["data"]["eval_samples"]
    assert Plan(parse_config(values)).scoring.eval_rewards is None


def test_a_run_keeps_the_commits_of_its_teachers():
    values = {"algorithm": {"type": "opd", "teachers": TWO, "teacher_column": "kind"}}
    config = parse_config(values)
    begun = config.pinned(lambda table, model: COMMIT if table.endswith(".code") else None)
    assert begun.fingerprint() != config.fingerprint()
    found = resolved_like(config, begun).algorithm.teachers
    assert (found["main"].revision, found["code"].revision) == (None, COMMIT)
    assert found["code"].device == "cuda:1"
    values["algorithm"]["teachers"]["main"] = {"name_or_path": "org/large", "revision": "v1"}
    tagged = parse_config(values).pinned(lambda table, model: None)
    assert tagged.algorithm.teachers["main"].revision == "v1"
    values["algorithm"]["teachers"]["code"] = "org/other"
    assert resolved_like(parse_config(values), begun).algorithm.teachers["code"].revision is None


def test_a_teacher_with_other_tokens_is_refused(tmp_path, teacher):
    build_model(tmp_path, NewModelConfig(alphabet=NewModelConfig().alphabet[::-1]), seed=0)
    config = taught(str(tmp_path), model={"name_or_path": teacher})
    told = ("algorithm.teachers.main", str(tmp_path), "token 3 is '\\n' to it and 'a' to the stu")
    with refused(ConfigError, *told):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_weights_alone_with_another_vocabulary_are_refused(tmp_path, teacher):
    build_model(tmp_path, NewModelConfig(alphabet="abc", hidden_size=32, num_layers=1), seed=0)
    for file in tmp_path.glob("*token*"):
        file.unlink()
    config = taught(str(tmp_path), model={"name_or_path": teacher})
    with refused(ConfigError, "algorithm.teachers.main", "no tokenizer", "vocabulary of 6 tok"):
        algorithm_of(config.algorithm).check(Plan(config).trainer)


def test_tools_are_refused():
    values = {
        "algorithm": {"type": "opd", "teachers": {"main": "org/teacher"}},
        "environment": {"tools": ["tools.py:add"]},
    }
    with refused(ConfigError, "'opd' trains on single turns"):
        parse_config(values)


TAUGHT = {
    "opd": {"type": "opd", "teachers": {"main": "org/large"}},
    "distillation": {"type": "distillation", "teacher": "org/large"},
}
HARNESS = {"decides": "bench", "sets": {"bench": {"type": "bench.py:Bench"}}}
OWN = {"decides": "hard", "sets": {"hard": {"functions": ["rewards.py:strict"]}}}


def judged(algorithm, evaluation, **data):
    sets = {"eval_sets": {"hard": "h.jsonl"}} if evaluation is OWN else {}
    source = {"source": "rows.jsonl", **sets, **data}
    return parse_config({"algorithm": TAUGHT[algorithm], "data": source, "evaluation": evaluation})


@pytest.mark.parametrize("evaluation", [HARNESS, OWN], ids=["harness", "set"])
@pytest.mark.parametrize("algorithm", TAUGHT)
def test_nothing_scores_by_default_where_sets_or_harnesses_alone_judge(
    algorithm, evaluation, tmp_path
):
    config = judged(algorithm, evaluation)
    scoring = Plan(config).scoring
    assert scoring.eval_rewards is None
    judging = judging_plan(resolved(config, cores=1), 1)
    for plan in (judging.workers["reward"].kwargs["plan"], scoring):
        if plan is scoring and algorithm == "opd":
            continue  # its teachers answer
        worker = RewardWorker(run_dir=str(tmp_path), plan=plan, num_steps=1)
        worker.start()
        assert worker.dry_run(problems=[Problem(id="p", prompt="a", columns={})]) == {}


@pytest.mark.parametrize("algorithm", TAUGHT)
def test_a_model_is_not_compared_by_problems_that_nothing_scores(algorithm):
    sets = {"eval_sets": {"hard": "h.jsonl", "easy": "e.jsonl"}}
    for config in (judged(algorithm, OWN, **sets), judged(algorithm, {}, eval_samples=3)):
        with refused(ConfigError, repr(algorithm), "--set evaluation.functions="):
            judging_plan(resolved(config, cores=1), 1)


def test_a_reward_under_a_teachers_name_is_refused():
    term = {"function": "rewards.py:exact", "name": "teacher-main"}
    with refused(ConfigError, "'teacher-main'", "algorithm.teachers", "another `name`"):
        parse_config({"algorithm": TAUGHT["opd"], "rewards": {"terms": [term]}})
    parse_config({"algorithm": TAUGHT["distillation"], "rewards": {"terms": [term]}})
    folder = {"functions": ["./models/teacher-main"]}  # which goes by its whole name then
    parse_config({"algorithm": TAUGHT["opd"], "rewards": folder})


@pytest.mark.parametrize("algorithm", TAUGHT)
@pytest.mark.parametrize("selection", ["dynamic", "screen", "curriculum", "own.py:chosen"])
def test_nothing_is_selected_by_rewards_where_nothing_is_learned_from_them(algorithm, selection):
    values = {"algorithm": TAUGHT[algorithm], "selection": {"type": selection}}
    values["training"] = {"num_generations": 8}
    with refused(ConfigError, f"selection.type = {selection!r}", repr(algorithm), "leave"):
        parse_config(values)
    del values["selection"]["type"]
    parse_config(values)
