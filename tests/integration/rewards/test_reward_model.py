"""`type = "model"`: a reward model scores as in TRL, in a process of its own."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from mortal_steps.errors import ModelError, MortalError, RewardError, WorkerLostError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, arguments_of
from mortal_steps.rewards.host import ModelHost
from mortal_steps.rewards.kinds.model import ModelTerm
from mortal_steps.rewards.reward_model import RewardModel
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.scores import reward_names
from mortal_steps.store import RunStore
from mortal_steps.types import Problem, RewardedShard
from tests.support.rewards.calling import call, scored, term
from tests.support.rewards.processes import assert_ends, supervisors
from tests.support.rewards.reward_models import CONTEXT, build_reward_model, without_padding
from tests.support.rewards.shards import make_request, make_shard
from tests.support.rollout.tiny_model import build_tiny_model

PROMPTS = ["ab=", "ab=", "abcdef=", "abcdef="]
COMPLETIONS = ["ba", "b", "fedcba, or so I think", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_reward_model(tmp_path_factory.mktemp("models") / "judge")


@pytest.fixture(scope="module")
def trl(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """Stock TRL, with the model named by a string; as it is, and without a token for padding."""
    at = tmp_path_factory.mktemp("trl")
    return GRPOTrainer(
        model=str(build_tiny_model(at / "policy", seed=1)),
        args=GRPOConfig(
            output_dir=str(at / "out"),
            bf16=False,
            report_to="none",
            per_device_train_batch_size=4,
            num_generations=4,
            chat_template_kwargs={"ending": "!"},
        ),
        reward_funcs=[str(folder), str(without_padding(build_reward_model(at / "bare")))],
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
    )


def chat(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def model_of(folder: str | Path, **settings: Any) -> RewardModel:
    return RewardModel(ModelTerm(model=str(folder), **settings))


@pytest.mark.parametrize("is_chat", [False, True])
def test_scores_equal_those_of_trl_to_the_bit(trl: GRPOTrainer, is_chat: bool) -> None:
    prompts: list[Any] = [chat("user", text) for text in PROMPTS] if is_chat else PROMPTS
    said = [chat("assistant", text) for text in COMPLETIONS] if is_chat else COMPLETIONS
    inputs = [{"prompt": prompt} for prompt in prompts]
    rewards = trl._calculate_rewards(inputs, prompts, said, [[0]] * len(said))
    assert len(set(rewards[:, 0].tolist())) == len(said)
    for number, model in enumerate(trl.reward_funcs):
        ours = model_of(model.name_or_path, chat_template_kwargs={"ending": "!"})
        scores = torch.tensor(ours(prompts=prompts, completions=said))
        assert torch.equal(scores, rewards[:, number])
    named = RunConfig(rewards={"functions": [model.name_or_path for model in trl.reward_funcs]})
    assert list(reward_names(named.rewards)) == trl.reward_func_names == ["judge", "bare"]


def test_alone_in_its_batch_a_score_does_not_depend_on_the_others(folder: Path) -> None:
    model = model_of(folder, batch_size=1)
    together = model(prompts=PROMPTS, completions=COMPLETIONS)
    pairs = zip(PROMPTS, COMPLETIONS, strict=True)
    assert together == [model(prompts=[p], completions=[c])[0] for p, c in pairs]


def test_what_is_too_long_is_cut_where_the_settings_say_so_or_fails(folder: Path) -> None:
    long = make_shard(("a" * 20, "b" * CONTEXT))
    failure = call(long, model=model_of(folder))["model"]
    assert isinstance(failure, CallFailure) and "its setting max_length" in failure.message
    end, start = (
        scored(model_of(folder, max_length=4, truncation=truncation), make_shard(("cdefg",)))
        for truncation in ("left", "right")
    )
    plain = model_of(folder)
    assert end.scores == plain(prompts=[""], completions=["defg"])
    assert start.scores == plain(prompts=["ab="], completions=["c"])


def no_tokens_for_padding(at: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(without_padding(build_reward_model(at)))
    tokenizer.eos_token = None
    tokenizer.save_pretrained(at)
    return at


def damaged(at: Path) -> Path:
    weights = build_reward_model(at) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return at


@pytest.mark.parametrize(
    ("build", "settings", "kind", "message"),
    [
        (
            lambda at: build_reward_model(at, head=False),
            {},
            RewardError,
            r"no weights for score\.w",
        ),
        (lambda at: build_reward_model(at, num_labels=3), {}, RewardError, r"num_labels = 1"),
        (no_tokens_for_padding, {}, RewardError, "neither a pad_token nor an eos_token"),
        (damaged, {}, RewardError, "does not load"),
        (lambda at: at, {}, ModelError, "the reward model: no such folder"),
        (build_reward_model, {"max_length": CONTEXT + 1}, RewardError, f"takes {CONTEXT} tokens"),
        (build_reward_model, {"device": "cuda"}, RewardError, "torch sees no GPU"),
    ],
)
def test_what_is_no_reward_model_is_refused_before_anything_is_scored(
    tmp_path: Path,
    build: Callable[[Path], Path],
    settings: dict[str, Any],
    kind: type[MortalError],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        ModelTerm(model=str(build(tmp_path / "model")), **settings).load()


@pytest.fixture
def worker(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RewardWorker]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.py").write_text(
        "def short(completions, **_): return [1 for _ in completions]"
    )
    config = RunConfig(
        rewards={"functions": ["short.py:short", str(folder)], "retries": 0},
        training={"trl": {"chat_template_kwargs": {"ending": "?"}}},
    )
    made = RewardWorker(run_dir="run", plan=Plan(config).scoring, num_steps=10)
    yield made
    made.close()


def test_a_model_scores_beside_functions_and_again_after_a_kill(
    worker: RewardWorker, folder: Path, tmp_path: Path
) -> None:
    shard = make_shard(("ba", "b"), ("abc", "baba"), prompt=chat("user", "ab="))
    others = supervisors()
    worker.dry_run(problems=[Problem(id="1", prompt="ab=", columns={})])
    store = RunStore(tmp_path / "run")

    def score(output: str) -> list[Any]:
        request = make_request(store, shard, output=output)
        return list(store.read_record(worker.reward(request=request).file, RewardedShard).rewards)

    model = model_of(folder, chat_template_kwargs={"ending": "?"})
    by_name = arguments_of(shard.groups, TrainerState(global_step=0, max_steps=1)).by_name
    expected = [{"short": 1.0, "judge": value} for value in model(**by_name)]
    first = score("first.parquet")
    assert [row for group in first for row in group] == expected
    started = supervisors() - others
    assert len(started) == 2, "that of the function, and that of the model"
    for process in started:
        os.kill(process, signal.SIGKILL)
        assert_ends(process)
    assert score("second.parquet") == first


def test_a_model_whose_process_is_killed_again_and_again_masks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dies.py").write_text(
        "import os, signal\n"
        "def dies(completions, **_):\n"
        "    open('calls', 'a').write('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = ModelHost({"dies": term("dies.py:dies")})
    arguments = arguments_of(make_shard(("a",)).groups, TrainerState(global_step=0, max_steps=1))
    with pytest.raises(WorkerLostError, match=r"dies\.py:dies ended its process \(SIGKILL\), 2 ti"):
        process.call(["dies"], arguments, timeout_s=30.0)
    process.close()
    assert (tmp_path / "calls").read_text() == "xx"
