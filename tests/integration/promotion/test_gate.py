"""mortal_steps.promotion: a run's model is compared with the one in use, then decided upon."""

import asyncio
import dataclasses
import datetime
import shlex

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import chat_template_utils

from mortal.trainer import judging
from mortal_steps.data.held_out import read_held_out
from mortal_steps.errors import ConfigError, ModelError, RewardError, StoreError
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.orchestration.trials.opening import judging_plan
from mortal_steps.promotion.comparison import Verdict, by_threshold, comparison_page
from mortal_steps.promotion.gate import Gate
from mortal_steps.promotion.judging import Judge
from mortal_steps.registry.registry import Registry
from mortal_steps.report.held_out import HeldOutScores, committed_shards
from mortal_steps.report.log_repair import restore_logs
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.runs.run import find_run
from mortal_steps.serving.whole import trained_files
from mortal_steps.types import GeneratedShard, Problem
from tests.support.bare_flow import InProcess, bare_in, go_on, one_thread
from tests.support.damage import flip_a_byte
from tests.support.environments.models import build_model
from tests.support.promotion import QUICK
from tests.support.refused import refused
from tests.support.undisturbed import begun, undisturbed

JUDGES = """
def length(completions, **kwargs):
    return [float(len(text)) for text in completions]
"""
SERVICE = """
import os

def length(completions, **kwargs):
    if os.path.exists("away"):
        raise ConnectionError("nobody answers")
    return [float(len(text)) for text in completions]
"""
FLAKY = """
def length(prompts, completions, **kwargs):
    if {prompt!r} in prompts:
        raise ValueError("this one always fails")
    return [float(len(text)) for text in completions]
"""
DICE = """
class Dice:
    def reset(self, **row):
        return None

    def roll(self) -> str:
        \"\"\"Roll the dice.\"\"\"
        return "six"
"""
MASKED = [
    'evaluation.functions=["service.py:length"]',
    'rewards.on_error="mask"',
    "rewards.retries=0",
]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"
YES = Verdict(promote=True, why="a test")


class Counted(InProcess):
    """Counts what is sampled."""

    sampled = 0

    async def call(self, role, method, **options):
        type(self).sampled += method == "generate"
        return await super().call(role, method, **options)


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "models", "tiny")


@pytest.fixture(autouse=True)
def counted(trained, monkeypatch):
    """Workers in this process, in the project's folder."""
    monkeypatch.chdir(trained)
    monkeypatch.setattr(Counted, "sampled", 0)
    with one_thread():
        yield Counted


def compare(gate):
    return asyncio.run(gate.compare(gate.bring_in()))


def promote(run, registry):
    gate = Gate(run, registry, local=Counted)
    return gate.decide(compare(gate), YES, by="a test")


def test_the_command_of_a_gate_names_its_folders_and_how_it_compares(
    runs, registry, tmp_path, monkeypatch
):
    run = runs["first"]
    gate = Gate(run, registry, ["evaluation.temperature=0.5"], local=Counted)
    monkeypatch.chdir(tmp_path)
    folders = ["--runs-dir", str(run.store.root.parent), "--models-dir", "models"]
    said = shlex.split(gate.command())
    assert said[:3] == ["mortal", "promote", "first"]
    assert sorted(said[3:]) == sorted(
        [*folders, "--name", "tiny", "--set", "evaluation.temperature=0.5"]
    )


def test_a_model_scores_what_its_run_scored_at_its_end(runs, registry):
    """Greedy decoding of the same weights on the same problems."""
    comparison = compare(Gate(runs["second"], registry, local=Counted))
    assert comparison.metrics == runs["second"].manifest.evaluation.metrics
    assert comparison.against.keys() == comparison.metrics.keys()


def test_a_model_is_judged_by_other_problems_on_request(runs, registry, counted, trained):
    (trained / "words.jsonl").write_text('{"prompt": "a="}\n{"prompt": "b="}\n')
    run, sets = runs["second"], {"some": "words.jsonl", "more": "words.jsonl"}
    data = run.config.data.model_copy(update={"eval_sets": sets, "eval_samples": 0})
    problems = [
        dataclasses.replace(problem, columns={"answer": "a"}) for problem in read_held_out(data, 0)
    ]
    plan = judging_plan(run.config, run.info.num_steps)
    judge = Judge(run.store, run, plan, counted, problems)
    found = asyncio.run(judge.judge("final", run.manifest.final.sha256))
    assert found.num_problems == 4
    assert {"eval_some_reward", "eval_more_reward", "reward"} <= found.metrics.keys()
    mean = (found.metrics["eval_some_reward"] + found.metrics["eval_more_reward"]) / 2
    assert found.metrics["reward"] == pytest.approx(mean)


def test_a_trainer_evaluates_on_its_runs_problems_or_on_others(runs, trained):
    (trained / "others.jsonl").write_text('{"prompt": "a=", "answer": "a"}\n')
    run_dir = runs["second"].store.root.absolute()
    assert judging.evaluate(run_dir, {}) == runs["second"].manifest.evaluation.metrics
    others = judging.evaluate(run_dir, {"eval_source": "others.jsonl"})
    assert others.keys() == {"lottery", "reward"}
    both = judging.evaluate(run_dir, {"eval_sets": {"one": "others.jsonl"}})
    assert both["eval_one_reward"] == both["reward"]


def test_a_run_scores_each_of_its_sets_in_every_evaluation(trained):
    row = '{"prompt": "%s=", "answer": "%s"}\n'
    for name, letters in {"easy": "ab", "hard": "cde"}.items():
        rows = "".join(row % (letter, letter) for letter in letters)
        (trained / f"{name}.jsonl").write_text(rows)
    settings = [*QUICK, "training.max_steps=1", "data.eval_samples=0"]
    settings += ["evaluation.num_generations=2", "evaluation.temperature=1.0"]
    settings += ["data.eval_sets.easy=easy.jsonl", "data.eval_sets.hard=hard.jsonl"]
    run = undisturbed(trained, settings, "sets")
    assert run.info.eval_sets == {"easy": 2, "hard": 3}
    scored = [
        group
        for shard in committed_shards(run.store, "evaluations/000001")
        for group in shard.rewards
    ]
    assert [len(group) for group in scored] == [2] * 5
    assert any(one != other for one, other in scored), "the completions have other seeds"
    assert HeldOutScores(run).intervals(1).keys() <= run.manifest.evaluation.metrics.keys()
    first, last = run.logs.read("evaluations.jsonl")
    for row in (first, last):
        easy, hard = row["eval_easy_reward"], row["eval_hard_reward"]
        assert row["reward"] == pytest.approx((2 * easy + 3 * hard) / 5)
    log = run.store.path("evaluations.jsonl")
    before = log.read_bytes()
    log.write_bytes(before[:-5])
    restore_logs(find_run(trained / "runs", "sets"))
    assert log.read_bytes() == before


class Tomorrow(datetime.datetime):
    """What the machine's clock says a day later."""

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(days=1)


def test_models_that_are_compared_on_different_days_are_asked_the_same(
    trained, registry, monkeypatch
):
    """By a chat template that writes the date into each prompt."""
    row = '{"prompt": [{"role": "user", "content": "%s="}], "answer": "%s"}\n'
    (trained / "chats.jsonl").write_text("".join(row % (one, one) for one in "abcdefgh"))
    tokenizer = AutoTokenizer.from_pretrained(trained / "runs/first/final")
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + TEMPLATE
    tokenizer.save_pretrained(trained / "dated")
    model = AutoModelForCausalLM.from_pretrained(trained / "runs/first/final")
    model.save_pretrained(trained / "dated")
    settings = [*QUICK, "training.max_steps=1", "data.source=chats.jsonl", "data.eval_samples=3"]
    settings += ["model={}", "model.name_or_path=dated", "training.batch_size=4", "rewards={}"]
    settings += ["rewards.terms=[{function='rewards.py:lottery', form='strings'}]"]
    promote(undisturbed(trained, settings, "today"), registry)
    monkeypatch.setattr(chat_template_utils, "datetime", Tomorrow)
    promote(undisturbed(trained, [*settings, "training.max_steps=2"], "tomorrow"), registry)
    asked = [prompts_in(shards) for shards in read_judged(registry.store)]
    assert len(asked) == 2
    assert asked[0] == asked[1]


def read_judged(store):
    """Return the generations of each judgement."""
    for judgement in sorted(store.root.glob("judged/*/judgement.json")):
        yield read_generated(store, judgement.parent.relative_to(store.root))


def read_generated(store, folder):
    """Return the generations in a folder."""
    found = sorted(store.path(str(folder)).glob("generations-*.parquet"))
    paths = [str(path.relative_to(store.root)) for path in found]
    return [store.find_record(path, GeneratedShard)[1] for path in paths]


def prompts_in(shards):
    """Return the prompts that a model was given."""
    return [(group.problem.id, group.prompt_ids) for shard in shards for group in shard.groups]


@pytest.fixture(scope="module")
def families(trained):
    """A run with tools of a model of each of two families, the second of which has another template
    for training."""
    (trained / "dice.py").write_text(DICE)
    row = '{"prompt": [{"role": "user", "content": "%s="}], "answer": "%s"}\n'
    (trained / "rolls.jsonl").write_text("".join(row % (one, one) for one in "abcdefgh"))
    settings = [*QUICK, "training.max_steps=1", "training.batch_size=4", "data.source=rolls.jsonl"]
    settings += ["data.eval_samples=3", "environment.factory=dice.py:Dice", "model={}"]
    settings += ["rewards={}", "rewards.terms=[{function='rewards.py:lottery', form='strings'}]"]
    names = "qwen2_5", "qwen3"
    for name in names:
        build_model(trained / name, name)
    return [undisturbed(trained, [*settings, f"model.name_or_path={name}"], name) for name in names]


def test_each_model_calls_tools_by_its_own_chat_template(families, registry):
    """As in its own run, also where the model in use is of another family."""
    first, second = families
    asked = [prompts_in(read_generated(run.store, "evaluations/000001")) for run in families]
    assert asked[0] != asked[1]
    promote(first, registry)
    comparison = compare(Gate(second, registry, ["rollout.num_shards=1"], local=Counted))
    found = sorted(map(prompts_in, read_judged(registry.store)))
    assert found == sorted([asked[0], *asked]), "the first one is judged a second time"
    assert comparison.metrics == second.manifest.evaluation.metrics
    assert comparison.against == first.manifest.evaluation.metrics


def test_what_was_scored_with_the_template_of_another_model_is_not_taken_again(families, registry):
    """As versions did whose judgements had the same key whatever the template was."""
    second = families[1]
    judge = Judge(registry.store, second, judging_plan(second.config, second.info.num_steps))
    paths = [Gate(run, registry).bring_in().path for run in families]
    keys = {judge.key(path, "0" * 64) for path in paths}
    assert len(keys) == 2


def test_a_model_whose_chat_template_knows_no_tools_is_not_compared_by_tools(
    families, runs, registry
):
    promote(runs["first"], registry)
    used = registry.production().id
    with refused(ModelError, used, "run qwen3", "renders no tool calls", "another name (--name)"):
        compare(Gate(families[1], registry, local=Counted))


@pytest.mark.parametrize(
    "change", ["training.learning_rate=0.01", "rewards.functions=judges.py:length"]
)
def test_a_fork_is_compared_with_its_parents_beginning_if_both_are_judged_alike(
    runs, registry, trained, change
):
    (trained / "judges.py").write_text(JUDGES)
    with bare_in(trained):
        name = change.partition(".")[0]
        forked = fork_run(runs["second"], ["training.max_steps=3", change], run_id=f"fork-{name}")
        fork = go_on(forked.config)
    comparison = compare(Gate(fork, registry, local=Counted))
    if name == "rewards":
        assert comparison.against is None, "other rewards have other scores"
    else:
        first = runs["second"].logs.read("evaluations.jsonl")[0]
        assert comparison.against == {key: first[key] for key in first if key != "step"}


def test_a_model_that_was_judged_is_not_judged_again(runs, registry, counted):
    gate = Gate(runs["second"], registry, local=counted)
    first = compare(gate)
    sampled = counted.sampled
    assert sampled > 0
    assert compare(Gate(runs["second"], registry, local=counted)) == first
    assert counted.sampled == sampled


def test_a_run_with_the_weights_of_one_that_was_refused_is_decided_upon_itself(
    runs, registry, counted
):
    gate = Gate(runs["second"], registry, local=counted)
    refused = gate.decide(compare(gate), Verdict(promote=False, why="a test"), by="a test")
    sampled = counted.sampled
    second = runs["second"]
    again = registry.add("again", second.info.uid, ("again",), "0" * 64, trained_files(second))
    assert again.sha256 == refused.version.sha256
    comparison = asyncio.run(gate.compare(again))
    assert counted.sampled == sampled, "the same weights score the same"
    assert gate.decide(comparison, YES, by="a test").version == again
    assert registry.production() == again


def test_a_kill_in_mid_judgement_costs_the_shards_in_flight(runs, registry, counted):
    class Dying(counted):
        async def call(self, role, method, **options):
            answer = await super().call(role, method, **options)
            if method == "reward":
                raise KeyboardInterrupt
            return answer

    with pytest.raises(KeyboardInterrupt):
        compare(Gate(runs["second"], registry, local=Dying))
    known = set(registry.store.path("judged").rglob("generations-*"))
    assert known
    written = {path: path.stat().st_mtime_ns for path in known}
    compare(Gate(runs["second"], registry, local=counted))
    assert {path: path.stat().st_mtime_ns for path in known} == written


def test_the_incumbent_answers_the_candidates_problems(runs, registry, counted):
    promote(runs["first"], registry)
    sampled = counted.sampled
    comparison = compare(Gate(runs["second"], registry, local=counted))
    assert comparison.against == runs["first"].manifest.evaluation.metrics
    candidate, incumbent = (
        runs[name].manifest.evaluation.metrics["reward"] for name in ("second", "first")
    )
    assert comparison.gain == candidate - incumbent
    assert comparison.paired.difference == pytest.approx(comparison.gain)
    assert comparison.paired.num_problems == comparison.num_problems
    assert counted.sampled == 2 * sampled  # the incumbent's answers to these problems were there


def test_a_threshold_decides_and_the_page_tells(runs, registry):
    comparison = compare(Gate(runs["second"], registry, local=Counted))
    just = by_threshold(comparison, comparison.paired.low - 0.001, "")
    assert just.promote
    assert not by_threshold(comparison, comparison.paired.low, "").promote
    page = comparison_page(comparison, "tiny", f"**Promoted**: {just.why}.")
    assert f"reward {comparison.metrics['reward']:.4f}, " in page
    assert f"[{comparison.paired.low:+.3f}, " in page or f"[{comparison.paired.low:.3f}, " in page
    assert "| `lottery` |" in page and "before training" in page and "`second`" in page


def test_a_judgement_whose_shards_are_lost_or_damaged_is_made_again(runs, registry, counted):
    first = compare(Gate(runs["second"], registry, local=counted))
    (lost, damaged) = sorted(registry.store.path("judged").glob("*/rewards-*"))
    lost.unlink()
    flip_a_byte(damaged)
    assert compare(Gate(runs["second"], registry, local=counted)) == first
    assert lost.exists()


def test_production_loads_where_models_are_loaded(runs, registry):
    promote(runs["second"], registry)
    model = AutoModelForCausalLM.from_pretrained(registry.link)
    assert AutoTokenizer.from_pretrained(registry.link)("abc")["input_ids"]
    assert sum(weights.numel() for weights in model.parameters()) > 1000
    assert registry.production().runs == ("second",)


def test_a_decision_names_what_it_was_taken_upon(runs, registry):
    decision = promote(runs["second"], registry)
    assert decision.metrics == runs["second"].manifest.evaluation.metrics
    assert decision.by == "a test"
    assert registry.history()[-1] == decision
    assert decision.paired.num_problems == runs["second"].info.num_eval_problems


def test_other_rewards_may_judge(runs, registry, trained):
    (trained / "judges.py").write_text(JUDGES)
    functions = ['evaluation.functions=["judges.py:length"]']
    comparison = compare(Gate(runs["second"], registry, functions, local=Counted))
    assert set(comparison.metrics) == {"length", "reward"}
    assert comparison.metrics["reward"] > 1
    assert comparison.against is None  # scored by other functions


def test_an_adapter_is_put_to_use_merged_in(registry, trained):
    lora = ["training.use_lora=true", "training.lora.r=2", "training.max_steps=1"]
    run = undisturbed(trained, [*QUICK, *lora], "adapter")
    comparison = compare(Gate(run, registry, local=Counted))
    assert comparison.metrics == run.manifest.evaluation.metrics
    names = {path.name for path in registry.store.path(comparison.candidate.path).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"adapter_config.json", "probe.json"}
    assert is_adapter(run.store.path("final"))
    (exported,) = run.store.path("exported").glob("step-1-*/model.safetensors")
    flip_a_byte(exported)  # and so the registry's link to it
    assert Gate(run, registry).bring_in() == comparison.candidate


def test_what_cannot_be_compared_is_refused(runs, registry, trained):
    with pytest.raises(ConfigError, match=r"only evaluation, rollout, rewards, compute say how"):
        Gate(runs["second"], registry, ["training.max_steps=9"])
    with pytest.raises(ConfigError, match="models are compared on this machine"):
        Gate(runs["second"], registry, ["compute.backend=modal"])
    unfinished = begun(trained, ["training.max_steps=9"], "unfinished")
    with pytest.raises(StoreError, match="has no finished model: it is created, step 0 of 9"):
        Gate(unfinished, registry).bring_in()
    without = begun(trained, ["data.eval_samples=0", "evaluation.eval_steps=0"], "without")
    with pytest.raises(ConfigError, match="no held-out problems to compare models on"):
        Gate(find_run(trained / "runs", without.info.run_id), registry)


def test_a_threshold_decides_nothing_where_nothing_could_be_scored(runs, registry, trained):
    """As while a judge is away; the same request scores again once it is back."""
    (trained / "service.py").write_text(SERVICE)

    def gate():
        return Gate(runs["second"], registry, MASKED, Counted, request="one")

    (trained / "away").touch()
    failed = gate()
    with pytest.raises(RewardError, match=r"(?s)second-.* because length failed: .*nobody answers"):
        failed.check_scored(compare(failed))
    (trained / "away").unlink()
    again = gate()
    comparison = compare(again)
    again.check_scored(comparison)
    assert comparison.metrics["reward"] > 0


def test_where_neither_model_could_be_scored_both_are_scored_again(runs, registry, trained):
    (trained / "service.py").write_text(SERVICE)
    promote(runs["first"], registry)
    (trained / "away").touch()
    failed = Gate(runs["second"], registry, MASKED, Counted, request="one")
    with pytest.raises(RewardError, match="second-"):
        failed.check_scored(compare(failed))
    (trained / "away").unlink()
    again = Gate(runs["second"], registry, MASKED, Counted, request="one")
    comparison = compare(again)
    again.check_scored(comparison)
    assert comparison.metrics["reward"] > 0 and comparison.against["reward"] > 0


def test_what_another_request_discards_meanwhile_is_compared_all_the_same(runs, registry, trained):
    """It is killed then, so what it has discarded is not there."""
    run = runs["second"]
    problems = run.store.read_record(run.info.eval_problems, list[Problem])
    promote(runs["first"], registry)
    (trained / "service.py").write_text(FLAKY.format(prompt=problems[0].prompt))
    gate = Gate(run, registry, MASKED, Counted, request="one")

    class Killed(Exception):
        pass

    class Dying(Counted):
        async def call(self, role, method, **options):
            raise Killed

    async def judge(version):
        found = await gate.judge(version)
        with pytest.raises(Killed):
            await Gate(run, registry, MASKED, Dying, request="two").judge(version)
        return found

    comparison = asyncio.run(gate.compare(gate.bring_in(), judge))
    assert comparison.metrics["rewards/length/masked"] > 0
    assert comparison.paired.num_problems == len(problems) - 1


def test_what_could_not_be_scored_is_scored_when_it_is_asked_for_again(
    runs, registry, trained, caplog
):
    (trained / "service.py").write_text(SERVICE)

    def gate(local=Counted, request=None):
        return Gate(runs["second"], registry, MASKED, local, request=request)

    class Dying(Counted):
        async def call(self, role, method, **options):
            answer = await super().call(role, method, **options)
            if method == "reward":
                raise KeyboardInterrupt
            return answer

    (trained / "away").touch()
    with pytest.raises(KeyboardInterrupt):
        compare(gate(Dying, "one"))
    known = set(registry.store.path("judged").rglob("rewards-*"))
    there = {path: path.stat().st_mtime_ns for path in known}
    assert there
    judged = compare(gate(request="one")).metrics
    assert "reward" not in judged
    assert {path: path.stat().st_mtime_ns for path in known} == there, "a killed one goes on"
    (trained / "away").unlink()
    Counted.sampled = 0
    assert compare(gate(request="one")).metrics == judged
    assert Counted.sampled == 0, "the same request keeps its judgement"
    metrics = compare(gate(request="another")).metrics
    assert metrics["reward"] > 0 and "rewards/length/masked" not in metrics
    assert "could not be scored (length failed: " in caplog.text
    again = Counted.sampled
    assert compare(gate()).metrics == metrics
    assert Counted.sampled == again, "a judgement without failures is kept"


def test_what_another_request_could_not_score_before_it_was_killed_is_scored_again(
    runs, registry, trained
):
    (trained / "service.py").write_text(SERVICE)

    class Dying(Counted):
        async def call(self, role, method, **options):
            answer = await super().call(role, method, **options)
            if method == "reward":
                raise KeyboardInterrupt
            return answer

    def gate(local, request):
        return Gate(runs["second"], registry, MASKED, local, request=request)

    (trained / "away").touch()
    for request in ("one", None):
        with pytest.raises(KeyboardInterrupt):
            compare(gate(Dying, request))
    (trained / "away").unlink()
    metrics = compare(gate(Counted, "another")).metrics
    assert metrics["reward"] > 0 and "rewards/length/masked" not in metrics
