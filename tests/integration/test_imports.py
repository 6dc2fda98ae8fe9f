"""The flow's process stays small: what it imports brings no torch along."""

import subprocess
import sys

import pytest

from tests.support.begun_runs import make_run

TRACKERS = ("wandb", "tensorboard", "trackio")
HEAVY = ("torch", "transformers", "trl", "vllm", "modal", *TRACKERS, "matplotlib")


@pytest.mark.parametrize(
    ("light", "modules"),
    [
        (
            (*HEAVY, "prefect", "datasets"),
            [
                "mortal_steps.types",
                "mortal_steps.config",
                "mortal_steps.store",
                "mortal_steps.compute.local",
                "mortal_steps.data",
                "mortal_steps.rollout.worker",
                "mortal_steps.policy.actor",
                "mortal_flows.training",
                "mortal.cli",
            ],
        ),
        ((*HEAVY, "prefect", "numpy"), ["mortal_steps.rewards.host_handler"]),
        (
            (*HEAVY, "prefect", "datasets", "reasoning_gym"),
            ["mortal_steps.rewards.worker"],
        ),
        (
            (*HEAVY, "prefect", "datasets", "reasoning_gym", "sympy"),
            ["mortal.rewards.functions"],
        ),
        ((*HEAVY, "prefect", "datasets", "pandas", "pydantic"), ["mortal"]),
        (
            (*HEAVY, "prefect", "datasets", "pandas"),
            ["mortal.migrating", "mortal.trainer"],
        ),
        (
            (*HEAVY, "reasoning_gym"),
            [
                "mortal_steps.rewards.functions",
                "mortal_steps.policy.starting_model.base_model",
                "mortal_flows.grpo_train",
            ],
        ),
    ],
)
def test_importing_needs_no(light, modules):
    """One process for all that should leave the same aside; the first that does not is named."""
    probe = (
        "import importlib, sys\n"
        f"for module in {modules!r}:\n"
        "    importlib.import_module(module)\n"
        f"    brought = [name for name in {light!r} if name in sys.modules]\n"
        "    assert not brought, f'{module} brings {brought}'\n"
    )
    finished = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_a_trainer_is_checked_without_what_trains(tmp_path):
    probe = (
        "import sys; from mortal import MortalTrainer\n"
        "from mortal_steps.errors import ConfigError\n"
        "given = {'reward_funcs': 'mortal.rewards.functions:exact_match'}\n"
        "given |= {'train_dataset': 'train.jsonl', 'config': {'training.trl.warmup_steps': 3}}\n"
        "MortalTrainer(**given)\n"
        "for wrong in ({'temprature': 1}, {'config': {'training.trl.warmup_step': 3}}):\n"
        "    try:\n"
        "        MortalTrainer(**given | wrong)\n"
        "    except ConfigError as error:\n"
        "        assert 'did you mean' in str(error)\n"
        "    else:\n"
        "        raise AssertionError(wrong)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert finished.stdout.strip() == "[]"


def test_commands_that_only_look_are_light(tmp_path):
    make_run(tmp_path, "begun")
    probe = (
        "import sys; from mortal.cli import app\n"
        "for command in (['runs'], ['show', 'begun'], ['status'], ['list-checkpoints', 'begun']):\n"
        f"    app([*command, '--runs-dir', {str(tmp_path)!r}], standalone_mode=False)\n"
        "heavy = ('datasets', 'pandas', 'prefect', 'torch', 'transformers')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert "begun  stopped" in finished.stdout
    assert finished.stdout.splitlines()[-1] == "[]"


def test_loading_problems_needs_no_torch(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    probe = (
        "import sys; from mortal_steps.config import DataConfig;"
        "from mortal_steps.data.problems import load_problems;"
        f"source = {str(tmp_path / 'rows.jsonl')!r};"
        "print(load_problems(DataConfig(source=source), 0)[0][0].prompt);"
        "print('torch' in sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert finished.stdout.split() == ["a", "False"]


def test_the_rollout_worker_is_light_until_it_starts():
    heavy = ("torch", "transformers", "vllm", "safetensors")
    probe = (
        "import sys; from mortal_steps.plan.parts import Plan;"
        "from mortal_steps.plan.run_config import RunConfig;"
        "from mortal_steps.rollout.worker import RolloutWorker;"
        "plan = Plan(RunConfig()).sampler;"
        "RolloutWorker(run_dir='nowhere', model_path='nothing', plan=plan);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_the_actor_is_spared_trackers_that_are_installed(tmp_path, tracker):
    """transformers and TRL import them where they find them."""
    (tmp_path / f"{tracker}.py").write_text("run = None")
    probe = (
        "import importlib.util; from mortal_steps.plan.run_config import RunConfig;"
        "from mortal_steps.plan.parts import Plan;"
        "from mortal_steps.policy.actor import Actor;"
        f"print(importlib.util.find_spec({tracker!r}) is None);"
        "plan = Plan(RunConfig()).actor;"
        "Actor(run_dir='.', plan=plan, fingerprint='f', model_path='', num_steps=1);"
        f"print(importlib.util.find_spec({tracker!r}) is None)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert finished.stdout.split() == ["False", "True"]


INTERRUPTED = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "mortal.cli":
            raise KeyboardInterrupt

from mortal.command import main

sys.meta_path.insert(0, Interrupting())
main()
"""


def test_ctrl_c_while_the_command_is_imported_is_no_traceback():
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
