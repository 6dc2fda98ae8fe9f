"""mortal_steps.policy.starting_model.warm_start and base_model: the model a run begins with."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from mortal_steps.config import DataConfig, ModelConfig, NewModelConfig, WarmStartConfig
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.errors import DataError, ModelError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.starting_model.base_model import (
    base_model_path,
    keep_base_model,
    make_base_model,
)
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.policy.starting_model.warm_start import warm_start
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import Problem

NEW = NewModelConfig(alphabet="abcd=", hidden_size=32, num_layers=1, intermediate_size=32)
TEXT = [
    Problem(id=f"train-{i}", prompt=f"{a}{b}=", columns={"answer": f"{b}{a}"})
    for i, (a, b) in enumerate((a, b) for a in "abcd" for b in "abcd")
]
CHAT = [
    Problem(id=row.id, prompt=[{"role": "user", "content": str(row.prompt)}], columns=row.columns)
    for row in TEXT
]


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    build_model(folder, NEW, seed=0)
    return folder


def weights(folder: Path | str) -> str:
    return digest_file(Path(folder) / "model.safetensors")


def greedy(folder: Path | str, rows: list[Problem]) -> list[str]:
    """Completions up to and including EOS."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    texts = [
        row.prompt
        if isinstance(row.prompt, str)
        else tokenizer.apply_chat_template(row.prompt, tokenize=False, add_generation_prompt=True)
        for row in rows
    ]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    ids = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    return [
        tokenizer.decode(row).replace(tokenizer.pad_token, "")
        for row in ids[:, inputs["input_ids"].shape[1] :]
    ]


def dialogues(result: str) -> list[Problem]:
    """Rows whose model calls `d`, and is answered."""
    return [
        Problem(
            id=row.id,
            prompt=row.prompt,
            columns={
                "answer": [
                    {"role": "assistant", "content": "⟨call⟩d {}⟨end⟩"},
                    {"role": "assistant", "content": row.columns["answer"]},
                    {"role": "tool", "content": result},
                ]
            },
        )
        for row in CHAT
    ]


def planned(config, cache_dir):
    """The plan of the actor of a run that keeps the models it makes in `cache_dir`."""
    return dataclasses.replace(Plan(config).actor, cache_dir=cache_dir)


def test_of_a_dialogue_what_tools_say_is_not_imitated(tmp_path):
    new = NEW.model_copy(update={"alphabet": "abcd= {}", "tool_calls": True})
    build_model(tmp_path / "start", new, seed=0)
    config = WarmStartConfig(steps=40, batch_size=8, learning_rate=1e-2)
    for result in ("a", "b"):
        warm_start(tmp_path / "start", tmp_path / result, dialogues(result), config, seed=1)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert set(greedy(tmp_path / "a", CHAT)) == {"⟨call⟩d {}"}, "of five tokens"


@pytest.mark.parametrize("rows", [TEXT, CHAT], ids=["text", "chat"])
def test_learns_the_completion_and_where_it_ends(start: Path, tmp_path: Path, rows) -> None:
    config = WarmStartConfig(steps=80, learning_rate=1e-2, batch_size=16)
    warm_start(start, tmp_path, rows, config, seed=0)
    assert greedy(tmp_path, rows) == [f"{row.columns['answer']}⟨eos⟩" for row in rows]


def test_the_same_seed_gives_the_same_bits(start: Path, tmp_path: Path) -> None:
    config = WarmStartConfig(steps=3, batch_size=8)
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        torch.rand(3)  # whatever was drawn before does not matter
        warm_start(start, tmp_path / name, TEXT, config, seed)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert weights(tmp_path / "one") != weights(tmp_path / "other")
    assert weights(tmp_path / "one") != weights(start)


@pytest.mark.parametrize("rows", [TEXT, CHAT], ids=["text", "chat"])
def test_its_weights_are_those_of_stock_trl(start: Path, tmp_path: Path, rows) -> None:
    config = WarmStartConfig(steps=7, batch_size=6)  # two epochs and a part
    warm_start(start, tmp_path / "ours", rows, config, seed=3)
    args = SFTConfig(
        output_dir=str(tmp_path / "scratch"),
        seed=3,
        max_steps=config.steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        per_device_train_batch_size=config.batch_size,
        max_length=None,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        dataloader_pin_memory=False,
    )
    answers = [row.columns["answer"] for row in rows]
    if rows is CHAT:
        answers = [[{"role": "assistant", "content": answer}] for answer in answers]
    pairs = zip(rows, answers, strict=True)
    stock = SFTTrainer(
        str(start),
        args,
        train_dataset=Dataset.from_list(
            [{"prompt": row.prompt, "completion": answer} for row, answer in pairs]
        ),
    )
    stock.train()
    stock.model.save_pretrained(tmp_path / "stock")
    assert weights(tmp_path / "ours") == weights(tmp_path / "stock")


def test_several_gpus_change_nothing(start: Path, tmp_path: Path, monkeypatch) -> None:
    config = WarmStartConfig(steps=2, batch_size=8)
    warm_start(start, tmp_path / "one", TEXT, config, seed=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)  # TRL would refuse to train
    warm_start(start, tmp_path / "several", TEXT, config, seed=0)
    assert weights(tmp_path / "one") == weights(tmp_path / "several")


def test_all_but_the_weights_stays(start: Path, tmp_path: Path) -> None:
    warm_start(start, tmp_path, TEXT, WarmStartConfig(steps=1), seed=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in start.iterdir())
    for file in start.iterdir():
        if file.suffix != ".safetensors":
            assert (tmp_path / file.name).read_text() == file.read_text()


def test_prompts_are_not_imitated(start: Path, tmp_path: Path) -> None:
    """With loss on the completion alone, a prompt's own letters do not get likelier."""
    rows = [Problem(id="train-0", prompt="dddddddd=", columns={"answer": "a"})]
    warm_start(start, tmp_path, rows, WarmStartConfig(steps=20, learning_rate=1e-2), seed=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("dddddddd=a", return_tensors="pt")["input_ids"]
    probabilities = model(input_ids=ids).logits[0].softmax(-1)
    a, d = tokenizer.convert_tokens_to_ids(["a", "d"])
    assert probabilities[-2, a] > 0.9  # after "="
    assert probabilities[3, d] < 0.5


@pytest.mark.parametrize(
    ("rows", "column", "expected"),
    [
        (TEXT, "anwser", ["'anwser'", "row train-0", "did you mean 'answer'?"]),
        (TEXT, "zzz", ["'zzz'", "Columns: answer"]),
        ([Problem(id="train-0", prompt="a")], "answer", ["Columns: none beside the prompt"]),
        (
            [*TEXT, Problem(id="train-16", prompt="a=", columns={"answer": 3})],
            "answer",
            ["row train-16 holds 3", "not a text"],
        ),
        (
            [Problem(id="train-0", prompt="a=", columns={"answer": ""})],
            "answer",
            ["row train-0 holds ''"],
        ),
        ([], "answer", ["needs training rows"]),
    ],
)
def test_bad_columns_are_named(start: Path, tmp_path: Path, rows, column, expected) -> None:
    config = WarmStartConfig(steps=1, completion_column=column)
    with pytest.raises(DataError) as caught:
        warm_start(start, tmp_path / "out", rows, config, seed=0)
    for part in expected:
        assert part in str(caught.value)


def test_bad_models_are_named(start: Path, tmp_path: Path) -> None:
    config = WarmStartConfig(steps=1)
    with pytest.raises(ModelError, match=r"no usable model at .*nowhere"):
        warm_start(tmp_path / "nowhere", tmp_path / "out", TEXT, config, seed=0)
    without_weights = tmp_path / "without-weights"
    shutil.copytree(start, without_weights)
    (without_weights / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot load the model .*without-weights"):
        warm_start(without_weights, tmp_path / "out", TEXT, config, seed=0)
    without_template = tmp_path / "without-template"
    shutil.copytree(start, without_template)
    (without_template / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="has no chat template"):
        warm_start(without_template, tmp_path / "out", CHAT, config, seed=0)


# --- the base model of a run ----------------------------------------------------------------------


def run_config(**model) -> RunConfig:
    return RunConfig(seed=1, data=DataConfig(source="x"), model=ModelConfig(**model))


def test_a_model_as_it_is_needs_nothing(tmp_path: Path) -> None:
    config = run_config(name_or_path="some/model")
    made = make_base_model(planned(config, tmp_path), TEXT)
    assert made == "some/model" == base_model_path(Plan(config).actor, "any")
    assert list(tmp_path.iterdir()) == []


def test_made_once_then_reused(tmp_path: Path) -> None:
    config = run_config(new=NEW)
    path = make_base_model(planned(config, tmp_path), TEXT)
    assert path == base_model_path(planned(config, tmp_path), dataset_fingerprint(TEXT))
    built = Path(path, "model.safetensors").stat()
    assert make_base_model(planned(config, tmp_path), TEXT) == path
    assert Path(path, "model.safetensors").stat().st_mtime_ns == built.st_mtime_ns
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [Path(path).name]


@pytest.mark.parametrize("damage", ["cut short", "missing file", "no manifest", "garbled"])
def test_a_damaged_model_is_made_again(tmp_path: Path, damage: str) -> None:
    config = run_config(new=NEW)
    path = Path(make_base_model(planned(config, tmp_path), TEXT))
    whole = weights(path)
    if damage == "cut short":
        (path / "model.safetensors").write_bytes(b"")
    elif damage == "garbled":
        (path / "manifest.json").write_bytes(b"?")
    else:
        (path / {"missing file": "config.json", "no manifest": "manifest.json"}[damage]).unlink()
    assert make_base_model(planned(config, tmp_path), TEXT) == str(path)
    assert weights(path) == whole
    store = RunStore(tmp_path)
    store.verify_folder(path.name, store.folder_digest(path.name))


def test_what_a_killed_warm_start_left_is_removed(tmp_path: Path) -> None:
    config = run_config(new=NEW)
    key = Path(base_model_path(planned(config, tmp_path), dataset_fingerprint(TEXT))).name
    left, other = tmp_path / f".{key}.0123.partial", tmp_path / ".another.0123.partial"
    for folder in (left, other):
        folder.mkdir()
    make_base_model(planned(config, tmp_path), TEXT)
    assert other.exists() and not left.exists()


def test_a_run_goes_on_only_with_the_model_it_began_with(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    first, other = (
        Path(make_base_model(planned(config, tmp_path), TEXT))
        for config in (run_config(new=NEW), run_config(new=NEW).model_copy(update={"seed": 2}))
    )
    keep_base_model(store, first)
    keep_base_model(store, first)
    with pytest.raises(ModelError, match="the run began with"):
        keep_base_model(store, other)


def test_warm_start_of_a_local_model_and_what_its_key_tells(start: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(start, model)
    warm = WarmStartConfig(steps=2, batch_size=4)
    config = run_config(name_or_path=str(model), warm_start=warm)
    path = make_base_model(planned(config, tmp_path / "cache"), TEXT)
    warm_start(model, tmp_path / "direct", TEXT, warm, seed=1)
    assert weights(path) == weights(tmp_path / "direct")

    data = dataset_fingerprint(TEXT)
    other_seed = config.model_copy(update={"seed": 2})
    other_steps = run_config(
        name_or_path=str(model), warm_start=warm.model_copy(update={"steps": 3})
    )
    paths = {
        base_model_path(Plan(config).actor, data),
        base_model_path(Plan(config).actor, dataset_fingerprint(TEXT[:-1])),
        base_model_path(Plan(other_seed).actor, data),
        base_model_path(Plan(other_steps).actor, data),
    }
    build_model(model, NEW, seed=5)  # another model in the same place
    paths.add(base_model_path(Plan(config).actor, data))
    assert len(paths) == 5


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    config = run_config(new=NEW, warm_start=WarmStartConfig(completion_column="zzz"))
    with pytest.raises(DataError):
        make_base_model(planned(config, tmp_path), TEXT)
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []
