"""Sets of evaluations with settings of their own, and harnesses, in whole runs."""

import asyncio
import dataclasses

import pytest

from mortal_steps.data.held_out import read_held_out
from mortal_steps.errors import ConfigError, HarnessError, RewardError, WorkerLostError
from mortal_steps.orchestration.checking.harnesses import check_harnesses
from mortal_steps.orchestration.checking.reward_calls import check_rewards, sets_of
from mortal_steps.orchestration.trials.opening import passing_workers
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.promotion.comparison import by_threshold, comparison_page
from mortal_steps.promotion.gate import Gate
from mortal_steps.registry.registry import Registry
from mortal_steps.report.held_out import HeldOutScores, committed_shards
from mortal_steps.report.log_repair import restore_logs
from mortal_steps.report.report_files import write_report
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.types import GeneratedShard, HarnessAnswer
from tests.support.bare_flow import InProcess, one_thread
from tests.support.damage import flip_a_byte
from tests.support.harnesses import ECHO, SETTINGS, write_sets
from tests.support.undisturbed import undisturbed


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def run(project):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", "http://127.0.0.1:9")  # a harness asks this machine all the same
        patch.setenv("no_proxy", "")
        return undisturbed(project, [*SETTINGS, *ECHO, "evaluation.decides=echo"], "sets")


def rows_of(run):
    return run.logs.read("evaluations.jsonl")


def generated(run, step):
    folder, number, found = f"evaluations/{step:06d}", 0, []
    while record := run.store.find_record(f"{folder}/generations-{number}.parquet", GeneratedShard):
        found += record[1].groups
        number += 1
    return found


def answer(run, step):
    return run.store.find_record(f"evaluations/{step:06d}/harness-echo.json", HarnessAnswer)[1]


def test_a_set_is_sampled_and_scored_in_its_own_way_beside_the_others(run):
    groups = generated(run, 1)
    assert [len(group.completions) for group in groups] == [1] * 5 + [3] * 3, "3 of its 4 problems"
    assert max(each.num_sampled for group in groups[5:] for each in group.completions) == 2
    for row in rows_of(run):
        easy, hard = row["eval_easy_reward"], row["eval_hard_reward"]
        assert row["matches"] == pytest.approx((2 * easy + 3 * hard) / 5)
        assert row["eval_other_rewards/first/mean"] == row["eval_other_reward"]
        assert 0 <= row["eval_other_pass@3/first"] <= 1
    scored = [
        group
        for shard in committed_shards(run.store, "evaluations/000001")
        for group in shard.rewards
    ]
    assert [list(group[0]) for group in scored] == [["matches"]] * 5 + [["first"]] * 3


def test_a_set_has_the_same_seeds_in_each_evaluation(run):
    seeds = [
        [each.seed for group in generated(run, step) for each in group.completions]
        for step in (0, 1)
    ]
    assert seeds[0][5:] == seeds[1][5:]
    assert seeds[0][:5] != seeds[1][:5], "as they always were"


def test_the_reward_is_that_of_the_set_that_decides_with_intervals_and_the_gain(run):
    for row in rows_of(run):
        assert row["reward"] == row["eval_echo_reward"] == row["eval_echo_rewards/has/mean"]
    found = HeldOutScores(run)
    scores = [each["has"] for each in answer(run, 2).scores.values()]
    assert found.of(2)["reward"] == scores
    assert list(answer(run, 2).scores) == ["a", "b", "c", "d"]
    assert found.intervals(2)["reward"].method == "wilson"
    assert found.of(2).keys() == rows_of(run)[-1].keys() - {"step"}
    gain = found.gain([0, 1, 2])
    assert (gain.decides, gain.paired.num_problems) == ("echo", 4)
    assert run.manifest.best_reward == max(row["reward"] for row in rows_of(run)[1:])
    write_report(run)
    report = run.store.path("report.md").read_text()
    assert "`eval_other_reward`" in report and "reward on echo since step 0" in report


def test_damaged_evaluations_are_made_again_from_shards_and_answers(run, project):
    log = run.store.path("evaluations.jsonl")
    before = log.read_bytes()
    log.write_bytes(before[:-5])
    restore_logs(find_run(project / "runs", "sets"))
    assert log.read_bytes() == before


def test_a_damaged_answer_is_found(run, project):
    path = run.store.path("evaluations/000001/harness-echo.json")
    before = path.read_bytes()
    flip_a_byte(path)
    (damaged,) = [each for each in check_run(project / "runs", "sets").files if each.damage]
    assert damaged.path == path
    path.write_bytes(before)


def test_a_harness_of_other_problems_than_before_is_not_compared(run, project):
    other = dataclasses.replace(answer(run, 2), scores={"z": {"has": 1.0}})
    path = "evaluations/000002/harness-echo.json"
    before = run.store.path(path).read_bytes()
    run.store.write_record(path, other, HarnessAnswer)
    assert HeldOutScores(find_run(project / "runs", "sets")).gain([0, 2]) is None
    run.store.path(path).write_bytes(before)


def test_a_run_killed_in_the_middle_of_a_harness_ends_with_the_same_answer(run, project):
    (project / "kill.txt").touch()
    settings = [*SETTINGS, *ECHO, "evaluation.decides=echo"]
    begun = len((project / "begun.txt").read_text().split())
    with pytest.raises(WorkerLostError):
        undisturbed(project, settings, "killed")
    again = undisturbed(project, settings, "killed")
    assert len((project / "begun.txt").read_text().split()) == begun + 4, "one of four was lost"
    assert rows_of(again) == rows_of(run)
    assert [answer(again, step) for step in range(3)] == [answer(run, step) for step in range(3)]
    assert again.manifest.final.weights_sha256 == run.manifest.final.weights_sha256


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("raises", "raised RuntimeError: the benchmark is broken"),
        ("hangs", "neither asked nor ended within 1 s"),
        ("exits", "its process was lost: "),
        ("number", "its answer is nan, which is no number"),
    ],
)
def test_a_harness_that_fails_ends_the_run_and_is_no_score(project, fails, says):
    settings = [*SETTINGS, *ECHO, f"evaluation.sets.echo.fails={fails}"]
    settings += ["evaluation.sets.echo.timeout_s=1"] if fails == "hangs" else []
    with pytest.raises(HarnessError, match=r"evaluation\.sets\.echo") as error:
        undisturbed(project, settings, fails)
    assert says in str(error.value)
    run = find_run(project / "runs", fails)
    assert not rows_of(run)


def test_a_goal_for_the_interval_of_one_number_is_refused_at_the_first_evaluation(project):
    settings = [*SETTINGS, *ECHO, "evaluation.decides=echo", "evaluation.sets.echo.fails=single"]
    settings += ["training.until.goal=0.4", "training.until.by=interval"]
    with pytest.raises(ConfigError, match=r"training\.until\.by = \"interval\": reward is one"):
        undisturbed(project, settings, "single")
    assert [row["reward"] for row in rows_of(find_run(project / "runs", "single"))] == [0.5]
    mean = [*settings[:-1], "training.until.evaluations=1"]
    again = undisturbed(project, mean, "single")
    assert (again.ended.key, again.ended.step) == ("goal", 1)
    assert len(rows_of(again)) == 2


def test_an_edited_harness_is_noticed(project):
    settings = [*SETTINGS, *ECHO]
    (project / "kill.txt").touch()
    with pytest.raises(WorkerLostError):
        undisturbed(project, settings, "edited")
    source = (project / "bench.py").read_text()
    (project / "bench.py").write_text(source.replace("4", "5"))
    try:
        with pytest.raises(RewardError, match=r"bench\.py was altered"):
            undisturbed(project, settings, "edited")
    finally:
        (project / "bench.py").write_text(source)


def test_the_gate_decides_by_the_set_that_is_named(run, project, monkeypatch):
    monkeypatch.chdir(project)
    found = {}
    for name in ("echo", "other"):
        registry = Registry(project / "models", name)
        gate = Gate(run, registry, [f"evaluation.decides={name}"], local=InProcess)
        with one_thread():
            found[name] = asyncio.run(gate.compare(gate.bring_in()))
        metrics = found[name].metrics
        assert metrics["reward"] == metrics[f"eval_{name}_reward"]
        assert f"reward on {name}" in by_threshold(found[name], 0.0, "").why
        page = comparison_page(found[name], name, "")
        assert "8 held-out problems, the same for both models" in page, "3 of the set's 4"
        assert f"that of the set {name}" in page
    assert found["echo"].metrics["eval_other_reward"] == rows_of(run)[-1]["eval_other_reward"]
    assert found["echo"].metrics["reward"] == rows_of(run)[-1]["reward"], "the same seeds"


def test_a_reward_is_tried_on_the_rows_of_its_set_before_a_run(project, monkeypatch):
    monkeypatch.chdir(project)
    wrong = "evaluation.sets.hard.functions=others.py:first"
    config = load_config(project / "tiny.toml", [*SETTINGS, wrong])
    held_out = read_held_out(config.data, 0)
    worker = passing_workers(Plan(config).workers)["reward"]
    train = read_held_out(config.data.model_copy(update={"eval_sets": {"x": "train.jsonl"}}), 0)
    sets = sets_of(config.evaluation, held_out)
    assert {name: len(its) for name, its in sets.items()} == {"hard": 2, "other": 2}
    assert sets["other"][0].columns == {"wanted": "a"}
    with pytest.raises(RewardError, match=r"evaluation\.sets\.hard: .*wanted"):
        check_rewards(worker, train, sets)
    check_rewards(worker, train, {"other": sets["other"]})


def test_a_harness_that_cannot_work_is_refused_before_a_run(project, monkeypatch):
    monkeypatch.chdir(project)
    for setting, says in {
        "evaluation.sets.echo.letters=''": "`check` of bench.py:Echo raised ValueError: letters",
        "evaluation.sets.echo.letters=7": "evaluation.sets.echo.letters = 7: must be a string",
        "evaluation.sets.echo.type=bench.py:Ech": "did you mean Echo?",
        "evaluation.sets.echo.type=others.py:first": "is no subclass of mortal.extend.Harness",
    }.items():
        config = load_config(project / "tiny.toml", [*SETTINGS, *ECHO, setting])
        with pytest.raises(HarnessError) as error:
            check_harnesses(config.evaluation.harnesses, config.compute, lambda line: None)
        assert says in str(error.value)
