"""The project that is trained each night: data, a reward that asks a judge, and a configuration.

Each night goes on from the model in production, so a night is of use only if the one before was put
to use, and a bad model that came there would be seen in every night after it.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.jobs import ROOT

NAME = "nights"
CONFIG = "nights.toml"
DEPLOYMENTS = "prefect.yaml"
NUM_HELD_OUT = 100
MIN_GAIN = -0.2
"""The interval of the gain of a model that is as good reaches less far below 0 on so many
problems."""
WARMUP_STEPS = 6
Kind = Literal["good", "collapse", "regression"]

REWARDS = '''"""Rewards that a judge gives."""

import json
import urllib.request
from urllib.error import URLError

from mortal_steps.errors import TransientError


def _judged(rubric, completions, answer):
    asked = json.dumps({{"rubric": rubric, "completions": completions, "answers": list(answer)}})
    try:
        with urllib.request.urlopen("{url}", data=asked.encode(), timeout=5) as said:
            return json.loads(said.read())
    except (URLError, ConnectionError, TimeoutError) as error:
        raise TransientError(f"the judge does not answer: {{error}}") from None


def right(completions, answer, **kwargs):
    """Whether the answer is right."""
    return _judged("exact", completions, answer)


def lively(completions, answer, **kwargs):
    """Another idea of a good answer."""
    return _judged("vowel", completions, answer)
'''

SETTINGS = """\
name = "{name}"
seed = 0

[model]
{model}

[data]
source = "train.jsonl"
eval_source = "eval.jsonl"

[rollout]
engine = "transformers"
num_rollout_workers = 2
max_tokens = 8

[rewards]
functions = ["rewards.py:{reward}"]

[training]
max_steps = {steps}
batch_size = 16
num_generations = 16
learning_rate = {learning_rate}
max_completion_length = 8
gradient_checkpointing = false

[training.trl]
lr_scheduler_type = "constant_with_warmup"
warmup_steps = {warmup_steps}
adam_beta2 = 0.99

[evaluation]
eval_steps = 8
functions = ["mortal.rewards.functions:exact_match"]

[checkpoints]
save_steps = 8

[compute.local.actor]
threads = 1
"""
NEW_MODEL = """\
max_model_len = 64

[model.new]

[model.warm_start]
steps = 50
learning_rate = 2e-3
batch_size = 64"""
IN_PRODUCTION = f"""\
name_or_path = "models/{NAME}/production"
max_model_len = 64"""

PLANTED: dict[Kind, dict[str, Any]] = {
    "good": {},
    # A hundred times too fast: the policy learns for some steps and then falls apart.
    "collapse": {"learning_rate": 0.05},
    # The training reward rises, the held-out problems ask for something else.
    "regression": {"reward": "lively", "learning_rate": 2e-3},
}


def write_project(folder: Path, judge_url: str) -> None:
    """Write what a user has: data and reward functions."""
    letters = ROOT / "examples" / "letters"
    shutil.copy(letters / "train.jsonl", folder / "train.jsonl")
    held_out = (letters / "eval.jsonl").read_text().splitlines(keepends=True)
    (folder / "eval.jsonl").write_text("".join(held_out[:NUM_HELD_OUT]))
    (folder / "rewards.py").write_text(REWARDS.format(url=judge_url))


def settings(steps: int, kind: Kind, *, first: bool = False, model: Path | None = None) -> str:
    """Return a night's configuration as TOML; `first`: of the evening before, with a new model;
    `model`: begin with this one instead of that in production."""
    begin = NEW_MODEL if first else IN_PRODUCTION
    if model is not None:
        begin = f'name_or_path = "{model}"\nmax_model_len = 64'
    usual = {"reward": "right", "learning_rate": 7e-4, "warmup_steps": steps}
    if kind != "collapse":
        usual["warmup_steps"] = WARMUP_STEPS
    return SETTINGS.format(name=NAME, model=begin, steps=steps, **(usual | PLANTED[kind]))


def write_settings(folder: Path, text: str) -> None:
    """Write what the next night trains."""
    (folder / CONFIG).write_text(text)


def write_deployments(folder: Path, interval_s: float, anchor: str) -> None:
    """Write the shipped deployments `nightly` and `promote` as a user would change them: another
    configuration and schedule, and the trigger of `promote` switched on."""
    shipped = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())
    by_name = {each["name"]: each for each in shipped["deployments"]}
    nightly, promote = by_name["nightly"], by_name["promote"]
    nightly["parameters"] = {"config_file": CONFIG, "skip_after_min": 60}
    nightly["schedules"] = [{"interval": interval_s, "anchor_date": anchor, "timezone": "UTC"}]
    promote["triggers"][0]["enabled"] = True
    promote["parameters"] = {"approval": "threshold", "min_gain": MIN_GAIN}
    kept: dict[str, Sequence[Any] | Any] = {
        name: shipped[name] for name in ("name", "prefect-version", "pull")
    }
    content = yaml.safe_dump({**kept, "deployments": [nightly, promote]}, sort_keys=False)
    (folder / DEPLOYMENTS).write_text(content)
