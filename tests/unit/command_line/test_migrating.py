"""docs/migrating.md, row by row."""

import asyncio
import dataclasses
import inspect
import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from modal.cli.run import run as modal_run_command

import mortal
from mortal import migrating
from mortal.cli import app
from mortal.migrating import OF_TRL, of_strings
from mortal.remote.modal_run import flags_on_modal
from mortal.trainer.settings import KEYS
from mortal_steps.errors import MortalError, RewardError
from mortal_steps.flags import FLAGS
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.run_config import RunConfig

PAGE = Path(__file__).parents[3] / "docs" / "migrating.md"
MAKEFILE = PAGE.parents[1] / "Makefile"
MORTAL = typer.main.get_command(app)
APP = "mortal_deployments.modal_app"
GIVEN = {name: getattr(where, name) for where in (mortal, migrating) for name in where.__all__}


def correct(completions, **columns):
    return [1.0 for _ in completions]


def brief(completions, **columns):
    return [0.0 for _ in completions]


GIVEN |= {"correct": correct, "brief": brief, "rows": [{"prompt": "1+1="}]}


def section(heading):
    return PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(heading):
    """Cells of each row of the table below a heading, without the head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]
    return [pytest.param(*row, id=row[0].strip("`")) for row in found]


def spans(cell):
    return re.findall(r"`([^`]+)`", cell)


def parsed(command, *arguments):
    """The values of a command's parameters, and nothing is done."""
    return command.make_context("test", list(arguments)).params


def modal_run(*arguments):
    """The entrypoint that `modal run` finds, and what its parameters are."""
    context = modal_run_command.make_context("run", list(arguments))
    name, command, rest = modal_run_command.resolve_command(
        context, [*context._protected_args, *context.args]
    )
    return name, parsed(command, *rest)


def value_at(config, key):
    """As JSON has it; `rewards.terms.0.type` goes into lists."""
    found = config.model_dump(mode="json")
    for part in key.split("."):
        found = found[int(part)] if part.isdecimal() else found[part]
    return found


def on_modal(flags):
    given = modal_run("-m", f"{APP}::main", *shlex.split(flags))[1]
    return load_config(None, flags=flags_on_modal(given))


@pytest.mark.parametrize(("before", "now"), rows("Commands"))
def test_a_command_is_parsed(before, now):
    for line in spans(now):
        program, name, *rest = shlex.split(line)
        if program == "modal":
            assert modal_run(*rest)[0].startswith(APP)
        elif program == "make":
            assert f"\n{name}: " in MAKEFILE.read_text()
        else:
            assert program == "mortal"
            parsed(MORTAL.get_command(None, name), *rest)


@pytest.mark.parametrize(("old", "new", "key", "value"), rows("Flags"))
def test_a_flag_writes_its_key(old, new, key, value):
    [old], [new], [key], [value] = map(spans, (old, new, key, value))
    given = parsed(MORTAL.get_command(None, "train"), *shlex.split(new))
    here = load_config(None, (), {flag.name: given[flag.name] for flag in FLAGS})
    wanted = json.loads(value)
    assert value_at(here, key) == value_at(on_modal(old), key) == wanted
    assert wanted != value_at(RunConfig(), key) or key == "data.max_samples"


@pytest.mark.parametrize(
    ("trainer", "parameters", "key", "value"),
    [
        pytest.param(trainer, *row.values, id=f"{trainer}({row.id})")
        for trainer in ("MRLTrainer", "MortalTrainer")
        for row in rows(trainer)
    ],
)
def test_a_parameter_of_a_trainer_writes_its_key(trainer, parameters, key, value, tmp_path):
    made = eval(f"{trainer}({spans(parameters)[0]}, runs_dir={str(tmp_path)!r})", GIVEN)
    assert value_at(made.config, *spans(key)) == json.loads(*spans(value))


@pytest.mark.parametrize(("fields", "key", "value"), rows("OrchestratorConfig"))
def test_a_field_of_the_configuration_writes_its_key(fields, key, value):
    made = eval(f"OrchestratorConfig({spans(fields)[0]})", GIVEN)
    [key], wanted = spans(key), json.loads(*spans(value))
    assert value_at(made.run_config(), key) == wanted
    assert wanted != value_at(GIVEN["OrchestratorConfig"]().run_config(), key)


@pytest.mark.parametrize(("before", "now"), rows("Imports"))
def test_an_import_works(before, now):
    there: dict[str, object] = {}
    exec(*spans(now), there)
    assert before.rpartition(" ")[2].strip("`") in there


@pytest.mark.parametrize(("key", "before", "now", "why"), rows("Defaults that differ"))
def test_a_default_is_as_it_says(key, before, now, why):
    config = load_config(None, (), {})
    assert value_at(config, *spans(key)) == json.loads(*spans(now))


@pytest.mark.parametrize(("before", "what", "why"), rows("What has no equivalent"))
def test_what_has_no_equivalent_is_refused(before, what, why, tmp_path):
    [said] = spans(before)
    assert what == "refused"
    with pytest.raises(MortalError):
        if said.startswith("main "):
            on_modal(said.removeprefix("main "))
        else:
            eval(f"{said[:-1]}, runs_dir={str(tmp_path)!r})", GIVEN)


@pytest.mark.parametrize("rewards", [5, ["sandbox", 5]], ids=str)
def test_what_is_no_reward_is_refused_as_the_trainer_does(rewards):
    with pytest.raises(RewardError, match=r"is of type int; give a function"):
        migrating.MRLTrainer(reward_funcs=rewards, train_dataset=[{"prompt": "1 + 1 ="}])


def test_a_reward_of_mrls_gets_strings_and_columns_alone():
    """Prompts may be chats, and the function need not take what TRL gives."""
    seen = []

    def judged(completions, answer):
        seen.append((completions, answer))
        return [0.5, 1.0]

    function = of_strings(judged)
    chats = [[{"role": "assistant", "content": text}] for text in ("4", "5")]
    of_trl = {name: [None, None] for name in OF_TRL}
    assert function(completions=chats, answer=["4", "5"], **of_trl) == [0.5, 1.0]
    assert seen == [(["4", "5"], ["4", "5"])]
    assert function.__name__ == "judged"


def test_an_async_reward_of_mrls_stays_one():
    async def judged(completions):
        return [float(len(text)) for text in completions]

    assert asyncio.run(of_strings(judged)(completions=["ab"], prompts=["x"])) == [2.0]


def test_the_configuration_of_modal_grpo_is_a_file_for_train(tmp_path):
    made = GIVEN["OrchestratorConfig"](max_samples=None)
    assert load_config(made.write(tmp_path / "mine.toml")) == made.run_config()


OF_MRL = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "reward_funcs": None,
    "train_dataset": None,
    "actor_gpu": "A100-80GB",
    "rollout_gpu": "A10G",
    "num_rollout_workers": 2,
    "weight_sync_method": "reload",
}
DEFAULTS_OF_MRL = {
    "num_generations": 4,
    "batch_size": 8,
    "learning_rate": 5e-6,
    "max_steps": -1,
    "num_epochs": 5,
    "loss_type": "dapo",
    "use_lora": False,
    "beta": 0.0,
    "epsilon": 0.2,
    "scale_rewards": "group",
    "max_model_len": 16384,
    "max_completion_length": 1024,
}
OWN = {"backend", "others", "prompt_column"}
"""Parameters that the older systems had not."""


def test_the_defaults_are_mrls():
    found = inspect.signature(GIVEN["MRLTrainer"]).parameters
    assert {name: one.default for name, one in found.items() if name not in OWN} == OF_MRL
    config = GIVEN["MRLTrainer"]().config
    assert {name: value_at(config, KEYS[name]) for name in DEFAULTS_OF_MRL} == DEFAULTS_OF_MRL


def test_the_defaults_are_those_of_modal_grpo():
    rollout = GIVEN["OrchestratorConfig"]().run_config().rollout
    assert (rollout.max_tokens, rollout.temperature, rollout.top_p) == (512, 0.7, 0.9)
    config = GIVEN["OrchestratorConfig"]().run_config()
    assert config.data == load_config(None, (), {}).data
    assert (config.compute.backend, config.compute.modal.actor) == ("modal", "H100")


def test_every_flag_and_parameter_is_in_the_tables():
    flags = {flag.option for flag in FLAGS if flag.name not in ("algorithm", "backend", "dataset")}
    assert flags <= set(re.findall(r"--[a-z-]+", section("Flags")))
    assert {*OF_MRL, *DEFAULTS_OF_MRL} <= set(re.findall(r"(\w+)=", section("MRLTrainer")))
    fields = {
        field.name
        for name in migrating.__all__
        if name.endswith("Config")
        for field in dataclasses.fields(GIVEN[name])
    }
    assert fields - OWN <= set(re.findall(r"(\w+)=", section("OrchestratorConfig")))
