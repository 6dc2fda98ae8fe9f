"""The examples of docs/extending.md for rewards, algorithms and episodes, run as a user would run
them."""

import importlib
import math
import sys
import tomllib
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError, EngineError, RewardError
from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.journal import find_entry
from mortal_steps.rewards.source_history import find_history
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.scores import reward_weights
from tests.support.bare_flow import Killed, bare_in, go_on
from tests.support.docs_examples import settings, write_modules
from tests.support.project import write_project

PAGE = "extending.md"
EPISODES = "Episodes of several turns"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's folder with both examples in it, which is the current one."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    for heading in ("A reward kind", "An algorithm", EPISODES):
        write_modules(PAGE, heading, folder)
    with bare_in(folder):
        yield folder


def configured(folder, heading, run_id, **changes):
    """The project's run with the settings below a heading; `matches` alone is 0 for every
    completion of so few steps, so the length of completions counts in all of them."""
    values = tomllib.loads((folder / "tiny.toml").read_text())
    values["training"] |= {"max_steps": 2}
    values |= tomllib.loads(settings(PAGE, "A reward kind"))
    for table, chosen in tomllib.loads(settings(PAGE, heading)).items():
        values[table] = {**values.get(table, {}), **chosen, **changes}
    path = folder / f"{run_id}.toml"
    path.write_text(dump_toml(parse_config({**values, "run_id": run_id})))
    return load_config(path)


def batch_of(run, step):
    """What a step of a run trained on."""
    batch = find_entry(run.store, step).request.batch
    return batch.read(run.store, step, run.plan.trainer)


def test_a_reward_kind_of_a_users_own_scores_a_run(project):
    config = configured(project, "A reward kind", "scored")
    assert reward_weights(config.rewards) == {"LengthReward": 0.5, "matches": 1.0}
    run = go_on(config)
    batch = batch_of(run, 1)
    for group in batch.groups:
        for rollout in group.rollouts:
            length = abs(len(rollout.completion.text) - 3)
            assert rollout.rewards["LengthReward"] == pytest.approx(max(0.0, 1 - length / 10))
            matches = rollout.rewards["matches"]
            assert math.isclose(rollout.reward, rollout.rewards["LengthReward"] / 2 + matches)
    assert "length_reward.py" in find_history(run.store)[-1].sources.files


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"best": -1}, r"type = 'length_reward.py:LengthReward': best = -1"),
        ({"type": "length_reward.py:LenghtReward"}, r"did you mean LengthReward\?"),
        ({"type": "rewards.py:matches"}, r"'rewards.py:matches' is no subclass of RewardTerm"),
        ({"type": "nowhere:Kind"}, r"type = 'nowhere:Kind': no module 'nowhere'"),
    ],
)
def test_what_is_wrong_with_a_kind_is_named(project, changed, message):
    (term, _) = tomllib.loads(settings(PAGE, "A reward kind"))["rewards"]["terms"]
    config = parse_config({"rewards": {"terms": [{**term, **changed}]}})
    worker = RewardWorker(run_dir=str(project), plan=Plan(config).scoring, num_steps=1)
    with pytest.raises(RewardError, match=message):
        worker.dry_run(problems=[])


def test_an_algorithm_of_a_users_own_trains(project):
    run = go_on(configured(project, "An algorithm", "downsampled"))
    assert run.manifest.final is not None
    whole = go_on(configured(project, "An algorithm", "whole", kept=4))
    plain = configured(project, "An algorithm", "plain").model_copy(
        update={"algorithm": parse_config({}).algorithm}
    )
    plain = go_on(plain)
    assert whole.manifest.final.weights_sha256 == plain.manifest.final.weights_sha256
    assert run.manifest.final.weights_sha256 != plain.manifest.final.weights_sha256
    assert Path(run.store.path("config.toml")).read_text().count("kept = 2") == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"type": "downsampled:Downsmpled"}, "has no 'Downsmpled'"),
        ({"type": "downsampled:replace"}, "is no subclass of Algorithm"),
        ({"type": "downsampled:Downsampled", "kept": "two"}, r"algorithm\.kept = 'two'"),
        ({"type": "downsampled:Downsampled", "kpt": 2}, r"algorithm\.kpt = 2"),
        (
            {"type": "nowhere:Algorithm"},
            r"algorithm\.type = 'nowhere:Algorithm': no module 'nowhere'",
        ),
    ],
)
def test_what_is_wrong_with_an_algorithm_is_named(project, table, message):
    with pytest.raises(ConfigError, match=message):
        algorithm_of(parse_config({"algorithm": table}).algorithm)


def test_episodes_of_two_turns_train_and_go_on_to_the_same_bits_after_a_kill(project):
    whole = go_on(configured(project, EPISODES, "whole-episodes"))
    config = configured(project, EPISODES, "killed-episodes")
    with pytest.raises(Killed):
        go_on(config, killed_after=0)
    killed = go_on(config)
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert any(row["grad_norm"] > 0 for row in whole.metrics())
    first, again = batch_of(whole, 0), batch_of(killed, 0)
    assert first.groups == again.groups
    for rollout in [rollout for group in first.groups for rollout in group.rollouts]:
        check_two_turns(rollout.completion)


def check_two_turns(completion):
    """The reply lies between the turns, and is neither sampled nor trained on."""
    one, two = completion.turns
    reply = slice(one.stop, two.start)
    assert (one.start, two.stop) == (0, len(completion.token_ids))
    assert len(completion.token_ids[reply]) == len(completion.logprobs[reply]) > 0
    assert set(completion.loss_mask[reply]) == set(completion.logprobs[reply]) == {0}
    assert completion.num_sampled == len(completion.token_ids) - (two.start - one.stop)
    assert one.seed != two.seed
    assert "=>" in completion.text


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"episodes": "second_thoughts:Missing"}, ConfigError, "has no 'Missing'"),
        ({"episodes_options": {"replies": 2}}, ConfigError, "rollout.episodes_options = .*replies"),
        ({"episodes": "second_thoughts:Fewer", "episodes_options": {}}, EngineError, "groups of"),
    ],
)
def test_what_is_wrong_with_episodes_is_named(project, changed, error, message):
    path = project / "second_thoughts.py"
    if "class Fewer" not in path.read_text():
        path.write_text(path.read_text() + FEWER)
        importlib.invalidate_caches()
        sys.modules.pop("second_thoughts", None)
    with pytest.raises(error, match=message):
        go_on(configured(project, EPISODES, f"wrong-{len(message)}", **changed))


FEWER = """

class Fewer(SingleTurn):
    def sample(self, *given):
        return super().sample(*given)[1:]
"""
