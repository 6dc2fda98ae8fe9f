"""GRPO on a trained model, by MORTAL and by stock TRL in turn: bits, memory, seconds by stage."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import steps
from benchmarks.gpu_check.checked import Checked, Found, Options, check_one, figures
from benchmarks.gpu_check.killed import Runs, Shot
from benchmarks.jobs import Failed

BFLOAT16 = "bfloat16"
FOLDER = "trained"
"""Of the model, beside the folders of the parts."""
SHOTS = (Shot("actor-0", "train_step", 2), Shot("flow", "train_step", 4))
MEMORY = (
    steps.Variant(rows=8, tokens=896),
    steps.Variant(rows=8, tokens=896, autocast=False),
)
REWARDS = '''
def right(completions, answer, **kwargs):
    """1 for the right number, else a part of it for each digit."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [
        1.0 if right in text else sum(map(str.isdigit, text)) / (2 * len(text) + 1)
        for text, right in zip(texts, answer)
    ]
'''
CONFIG = """
name = "trained"
seed = 7

[model]
name_or_path = {model}

[data]
source = "train.jsonl"

[rollout]
engine = "transformers"
num_rollout_workers = 1
num_shards = 1

[rewards]
functions = ["rewards.py:right"]

[training]
learning_rate = 1e-5

[checkpoints]
save_steps = 2
"""
OF_A_GPU = {"batch_size": 16, "num_generations": 8, "max_completion_length": 64, "max_steps": 6}
ON_A_CPU = {"batch_size": 2, "num_generations": 4, "max_completion_length": 8, "max_steps": 4}


def check_model(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield whether the model is there: its four bits a weight are widened to float32."""

    def look() -> Found:
        if options.model is None and not options.tiny:
            raise Failed("name a GGUF file or a folder with --model")
        given = str(options.model) if options.model else None
        answer = options.ask("trained:make_model", folder.parent / FOLDER, given=given)
        name = options.model.name if options.model else "random weights"
        return Found(measured=f"{answer['parameters']:,} parameters: {name}")

    yield check_one("model", "the model is made", look)


def check_memory(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield train steps of full length, whose memory is held to the forecast."""
    variants = steps.TINY if options.tiny else MEMORY
    return steps.check_variants("memory", folder, options, _model(folder), variants)


def check_again(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield stock TRL's own loop in bfloat16 once more: how far do two of its runs differ?"""
    yield _own_loop(BFLOAT16, folder.parent / BFLOAT16, options, again=True)


def check(dtype: str, folder: Path, options: Options) -> Iterator[Checked]:
    """Yield MORTAL's run and its bits by stock TRL; then stock TRL's own loop, and MORTAL's run
    again, under kills: in bfloat16, which is float32 weights under autocast, or in float32."""
    settings = _settings(dtype, options)
    runs = Runs(config=_write_project(folder), options=options, settings=settings)

    def same_bits() -> Found:
        if runs.alone is None or (final := runs.alone.manifest.final) is None:
            raise Failed("there is no run")
        answer = _stock("replayed", folder, options, settings)
        is_same = answer["sha256"] == final.weights_sha256
        words = f"sha256 {'equal' if is_same else 'DIFFERENT'}, {answer['moved']} tensors trained"
        found = figures("s", **{"a step without sampling": answer["seconds"]})
        return Found(passed=is_same and answer["moved"] > 0, measured=words, figures=found)

    yield check_one(dtype, f"{dtype}: a run", runs.undisturbed)
    yield check_one(dtype, f"{dtype}: stock TRL on its rollouts: same bits", same_bits)
    yield _own_loop(dtype, folder, options)
    yield check_one(dtype, f"{dtype}: the run, killed twice: same bits", lambda: runs.killed(SHOTS))


def _own_loop(dtype: str, folder: Path, options: Options, *, again: bool = False) -> Checked:
    def look() -> Found:
        seconds = _stock("own", folder, options, _settings(dtype, options))["seconds"]
        found = figures("s", **{"a step": seconds})
        return Found(measured=f"{found['a step']} a step, sampling and training", figures=found)

    part, more = ("again", ", again") if again else (dtype, "")
    return check_one(part, f"{dtype}: stock TRL's own loop{more}", look)


def _stock(what: str, folder: Path, options: Options, settings: list[str]) -> dict[str, Any]:
    """Ask stock TRL, beside the run of the project in this folder."""
    config = str(folder / "trained.toml")
    place = folder / what
    return options.ask(f"stock:{what}", place, config=config, settings=settings, run_id="alone")


def _settings(dtype: str, options: Options) -> list[str]:
    autocast = str(dtype == BFLOAT16).lower()
    sizes = ON_A_CPU if options.tiny else OF_A_GPU
    sized = [f"training.{name}={size}" for name, size in sizes.items()]
    return [f"training.trl.bf16={autocast}", f"rollout.dtype={dtype}", *sized]


def _model(folder: Path) -> Path:
    return folder.parent / FOLDER / "model"


def _write_project(folder: Path) -> Path:
    """Sums to work out, asked in a chat where the model knows one."""
    folder.mkdir(parents=True, exist_ok=True)
    model, source = _model(folder), random.Random(0)
    chats = (model / "chat_template.jinja").exists()
    rows = []
    for _ in range(200):
        one, other = source.randrange(10, 60), source.randrange(10, 60)
        asked = f"What is {one} + {other}? Answer with the number alone."
        prompt = [{"role": "user", "content": asked}] if chats else f"{one}+{other}="
        rows.append({"prompt": prompt, "answer": str(one + other)})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "trained.toml").write_text(CONFIG.format(model=json.dumps(str(model))))
    return folder / "trained.toml"


def make_model(job: dict[str, Any]) -> dict[str, Any]:
    """Write the model and its tokenizer to `model`, as transformers loads them: the one that is
    given, or a new one of next to no size."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from mortal_steps.config import NewModelConfig
    from mortal_steps.policy.model_files.importing import import_gguf
    from mortal_steps.policy.starting_model.new_model import build_model

    into, given = Path(job["folder"]) / "model", job["given"]
    if given is not None and Path(given).is_file():
        return {"parameters": import_gguf(Path(given), into, "float32")}
    if given is None:
        build_model(into, NewModelConfig(), seed=0)
    model: Any = AutoModelForCausalLM.from_pretrained(given or into, dtype="float32")
    if given is not None:
        model.save_pretrained(into)
        AutoTokenizer.from_pretrained(given).save_pretrained(into)
    return {"parameters": sum(parameter.numel() for parameter in model.parameters())}
