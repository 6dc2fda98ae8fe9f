"""The names, parameters and defaults that users write."""

import inspect
import re

import pytest

import mortal
from mortal import (
    DistillationTrainer,
    Distributed,
    DPOTrainer,
    GPUConfig,
    KTOTrainer,
    MortalTrainer,
    RewardTrainer,
    SFTTrainer,
    SingleNode,
    TrainingResult,
)
from mortal_steps import errors
from mortal_steps.errors import ConfigError
from mortal_steps.plan.run_config import RunConfig

PARAMETERS = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "reward_funcs": None,
    "args": None,
    "train_dataset": None,
    "eval_dataset": None,
    "processing_class": None,
    "reward_processing_classes": None,
    "tools": None,
    "environment_factory": None,
    "mode": None,
    "reward_weights": None,
    "peft_config": None,
    "quantization_config": None,
    "num_generations": None,
    "batch_size": None,
    "learning_rate": None,
    "max_steps": None,
    "num_epochs": None,
    "loss_type": None,
    "beta": None,
    "epsilon": None,
    "scale_rewards": None,
    "max_completion_length": None,
    "max_tokens": None,
    "max_model_len": None,
    "use_lora": None,
    "gradient_checkpointing": None,
    "algorithm": None,
    "backend": "local",
    "run_id": None,
    "runs_dir": "runs",
    "report_to": None,
    "config": None,
    "others": inspect.Parameter.empty,
}
MODES = {
    SingleNode: {"gpu": "A100-80GB", "use_vllm": False, "vllm_mode": "colocate"},
    Distributed: {
        "actor": "A100-80GB",
        "rollout": "A10G",
        "num_rollout_workers": None,
        "weight_sync_method": None,
        "sync_weights_every": 1,
    },
    GPUConfig: {"gpu_type": inspect.Parameter.empty, "count": 1},
}
METHODS = {
    "train": {"resume": None, "detach": False, "resume_from_checkpoint": None},
    "result": {},
    "evaluate": {"eval_dataset": None},
    "save_model": {"path": inspect.Parameter.empty},
    "push_to_hub": {
        "repo_id": None,
        "private": False,
        "token": None,
        "commit_message": None,
        "dataset_name": None,
    },
    "status": {},
    "stop": {"timeout_s": 600.0},
    "log_metrics": {"split": inspect.Parameter.empty, "metrics": inspect.Parameter.empty},
    "save_metrics": {
        "split": inspect.Parameter.empty,
        "metrics": inspect.Parameter.empty,
        "combined": True,
    },
    "end": {},
}
OF_ROWS = {
    "model": inspect.Parameter.empty,
    "args": None,
    "data_collator": None,
    "train_dataset": None,
    "eval_dataset": None,
    "processing_class": None,
    "peft_config": None,
    "quantization_config": None,
    "mode": None,
    "backend": "local",
    "run_id": None,
    "runs_dir": "runs",
    "config": None,
    "others": inspect.Parameter.empty,
}
OF_A_RESULT = {
    "cost",
    "evaluations",
    "metrics",
    "model_path",
    "run_dir",
    "run_id",
    "sha256",
    "status",
    "step",
    "timings",
}


def defaults(called):
    return {name: one.default for name, one in inspect.signature(called).parameters.items()}


def test_the_package_exports_these_names():
    assert mortal.__all__ == [
        "DPOTrainer",
        "DistillationTrainer",
        "Distributed",
        "GPUConfig",
        "KTOTrainer",
        "MortalTrainer",
        "Recipe",
        "RewardTrainer",
        "SFTTrainer",
        "SingleNode",
        "TrainingResult",
        "__version__",
        "errors",
        "extend",
        "open_run",
        "rewards",
        "runs",
    ]
    assert dir(mortal) == mortal.__all__
    assert all(getattr(mortal, name) for name in mortal.__all__)
    assert set(mortal.errors.__all__) == {
        name for name, each in vars(errors).items() if isinstance(each, type)
    }
    for face in (mortal.errors, mortal.extend, mortal.rewards):
        assert all(getattr(face, name).__doc__ for name in face.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        mortal.Nothing  # noqa: B018


def test_defaults_of_the_trainer_are_those_of_the_configuration():
    plain = RunConfig(data={"source": "train.jsonl"}, rewards={"terms": [{"type": "sandbox"}]})
    trainer = MortalTrainer(train_dataset="train.jsonl")
    assert trainer.config.identity() == plain.identity()
    assert trainer.mode == Distributed()


def test_the_trainer_takes_these_parameters():
    assert defaults(MortalTrainer) == PARAMETERS
    assert list(defaults(MortalTrainer)) == list(PARAMETERS)


@pytest.mark.parametrize("trainer", [MortalTrainer, SFTTrainer, DistillationTrainer])
@pytest.mark.parametrize("method", METHODS)
def test_a_trainer_has_these_methods(trainer, method):
    found = defaults(getattr(trainer, method))
    assert found.pop("self") is inspect.Parameter.empty
    assert found == METHODS[method]


def test_the_trainers_that_learn_from_rows_take_these_parameters():
    for trainer in (SFTTrainer, RewardTrainer):
        assert defaults(trainer) == OF_ROWS and list(defaults(trainer)) == list(OF_ROWS)
    explained = re.findall(r"^ {12}(\**\w+): ", SFTTrainer.__init__.__doc__, re.MULTILINE)
    assert explained == [*list(OF_ROWS)[:-1], "**others"]
    for trainer in (DPOTrainer, KTOTrainer):
        assert list(defaults(trainer))[:3] == ["model", "ref_model", "args"]
        assert trainer.__doc__ and defaults(trainer)["ref_model"] is None


def test_the_docstring_explains_every_parameter():
    explained = re.findall(r"^ {8}(\**\w+): ", MortalTrainer.__doc__, re.MULTILINE)
    assert explained == [*list(PARAMETERS)[:-1], "**others"]


def test_a_result_has_these_properties():
    assert {name for name in dir(TrainingResult) if not name.startswith("_")} == OF_A_RESULT


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
def test_a_mode_takes_these_parameters(mode):
    assert defaults(mode) == MODES[mode]


def test_vllm_of_its_own_takes_two_gpus():
    with pytest.raises(ConfigError, match=r"GPUConfig\('A100-80GB', count=2\)"):
        SingleNode(use_vllm=True, vllm_mode="serve")
    two = SingleNode(gpu=GPUConfig("A100", count=2), use_vllm=True, vllm_mode="serve")
    assert two.settings()["compute.modal.gpu"] == "A100:2"


def test_weights_may_travel_through_shared_memory():
    settings = Distributed(weight_sync_method="direct").settings()
    assert settings["rollout.weight_sync"] == "direct"


def test_a_gpu_that_modal_does_not_rent_is_refused():
    with pytest.raises(ConfigError, match="did you mean A10"):
        GPUConfig("A1OO")


@pytest.mark.parametrize("name", ["GRPOTrainer", "RLOOTrainer"])
def test_the_names_of_trl_that_are_others_here_lead_to_those(name):
    with pytest.raises(AttributeError, match="MortalTrainer takes its arguments"):
        getattr(mortal, name)
