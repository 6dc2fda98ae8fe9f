"""mortal_steps.config.rewards: what one string in `rewards.functions` stands for."""

from collections.abc import Iterable

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.resolve_defaults import resolved, resolved_like
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.scores import reward_names
from tests.support.refused import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("spec", "kind", "settings"),
    [
        ("package.module:function", "function", {"function": "package.module:function"}),
        ("deep/file.py:function", "function", {"function": "deep/file.py:function"}),
        ("sandbox", "sandbox", {}),
        ("./judge", "model", {"model": "./judge", "revision": None}),
        ("/models/judge@2", "model", {"model": "/models/judge@2", "revision": None}),
        ("../models/judge", "model", {"model": "../models/judge", "revision": None}),
        ("org/judge", "model", {"model": "org/judge", "revision": None}),
        ("org/judge@refs/pr/1", "model", {"model": "org/judge", "revision": "refs/pr/1"}),
    ],
)
def test_each_form_stands_for_one_kind(spec: str, kind: str, settings: dict[str, object]) -> None:
    (term,) = RewardsConfig(functions=(spec,)).all_terms
    assert term.type == kind
    assert {name: getattr(term, name) for name in settings} == settings


@pytest.mark.parametrize("spec", ["rewards", "rewards.py", "deep/rewards.py", "math", ""])
@pytest.mark.parametrize("table", ["rewards", "evaluation"])
def test_what_is_none_of_the_forms_is_told_all_of_them(spec: str, table: str) -> None:
    with refused(ConfigError, f"{table}.functions", repr(spec)) as e:
        parse_config({table: {"functions": [spec]}})
    for form in ("module:function", "file.py:function", "sandbox", "./folder", "org/model"):
        assert form in str(e.value)


def test_where_nothing_is_named_programs_run_against_test_cases() -> None:
    nothing = RunConfig()
    assert [term.type for term in nothing.rewards.all_terms] == ["sandbox"]
    assert reward_names(nothing.rewards) == ("sandbox",)
    assert (nothing.rewards.are_named, nothing.identity()["rewards"]["functions"]) == (False, [])


def test_a_reward_model_is_called_as_its_folder_is() -> None:
    one = RunConfig(rewards={"functions": ["org/judge", "./models/critic", "rewards.py:judges"]})
    assert reward_names(one.rewards) == ("judge", "critic", "judges")
    two = RunConfig(rewards={"functions": ["org/judge", "other/judge", "rewards.py:judge"]})
    assert reward_names(two.rewards) == ("org/judge", "other/judge", "rewards.py:judge")


def pinned(config: RunConfig, commits: dict[str, str]) -> RunConfig:
    return config.pinned(lambda table, model: commits.get(model.name_or_path))


def test_one_reward_model_may_score_at_two_revisions() -> None:
    written = RunConfig(
        rewards={"functions": ["org/judge@v1", "a:b"]}, evaluation={"functions": ["org/judge@v2"]}
    )
    commits = {"v1": COMMIT, "v2": "f" * 40}
    begun = resolved(written.pinned(lambda table, model: commits.get(model.revision)), cores=1)
    assert begun.evaluation.functions == (f"org/judge@{'f' * 40}",)
    assert resolved_like(written, begun).fingerprint() == begun.fingerprint()


def test_a_run_keeps_the_commits_of_its_reward_models() -> None:
    written = RunConfig(
        rewards={"functions": ["a:b", "org/judge@main"], "weights": [1.0, 0.5]},
        evaluation={"functions": ["org/critic"]},
    )
    commits = {"org/judge": COMMIT, "org/critic": "f" * 40}
    begun = resolved(pinned(written, commits), cores=1)
    assert begun.rewards.functions == ("a:b", f"org/judge@{COMMIT}")
    assert begun.evaluation.functions == (f"org/critic@{'f' * 40}",)
    assert resolved_like(written, begun).fingerprint() == begun.fingerprint()
    long = RunConfig(
        rewards={
            "terms": [
                {"function": "a:b"},
                {"type": "model", "model": "org/judge", "weight": 0.5, "max_length": 9},
            ]
        }
    )
    begun = resolved(pinned(long, commits), cores=1)
    assert begun.rewards.terms[1].source.revision == COMMIT
    assert resolved_like(long, begun).identity() == begun.identity()
    other = RunConfig(rewards={"functions": ["a:b", "org/other"]})
    assert resolved_like(other, begun).rewards.functions == ("a:b", "org/other")


def test_the_reward_models_of_sets_are_pinned_each_with_its_own_commit() -> None:
    sets = {
        "hard": {"functions": ["c:d", "org/judge@v1"]},
        "easy": {"terms": [{"type": "model", "model": "org/judge", "revision": "v2"}]},
        "as_all": {"temperature": 0.5},
    }

    def written(names: Iterable[str]) -> RunConfig:
        return RunConfig.model_validate(
            {
                "data": {"source": "x.jsonl", "eval_sets": dict.fromkeys(sets, "x.jsonl")},
                "rewards": {"functions": ["org/judge@main", "a:b"]},
                "evaluation": {"sets": {name: sets[name] for name in names}, "decides": "hard"},
            }
        )

    commits = {"main": "a" * 40, "v1": "b" * 40, "v2": "c" * 40}
    begun = resolved(
        written(sets).pinned(lambda table, model: commits[str(model.revision)]), cores=1
    )
    own = begun.evaluation.problem_sets
    assert own["hard"].functions == ("c:d", f"org/judge@{'b' * 40}")
    assert own["easy"].terms[0].source.revision == "c" * 40
    assert not own["as_all"].functions and begun.rewards.functions[0].endswith("a" * 40)
    again = resolved_like(written(reversed(sets)), begun)
    assert again.fingerprint() == begun.fingerprint()
    before = resolved(written(sets), cores=1)  # begun without commits of these
    assert resolved_like(written(sets), before).fingerprint() == before.fingerprint()
