"""Whoever names another trainer of TRL's as the algorithm is told what there is."""

import importlib.util
from pathlib import Path

import pytest
import trl

from mortal_steps.config.algorithm import ALGORITHMS
from mortal_steps.config.loader import parse_config
from mortal_steps.config.trl_trainers import GONE, OTHERS
from mortal_steps.errors import ConfigError

EXPERIMENTAL = Path(trl.__path__[0]) / "experimental"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("PPOTrainer", "type = 'PPOTrainer': TRL has no PPO trainer any more; there are 'grpo'"),
        ("nash-md", "TRL has no Nash-MD trainer any more; .* and 'rloo'; or write 'module:Class'"),
        ("dpo", "TRL's DPO learns from pairs of a better and a worse answer, and MORTAL learns"),
        ("SFTTrainer", r"TRL's SFT learns from examples, .*\(grpo, dapo, .*\), and 'rloo'"),
        ("Online_DPO", "TRL's OnlineDPO samples pairs itself"),
        ("RewardTrainer", "TRL's RewardTrainer makes a reward model"),
        ("RLOOConfig", "it is written 'rloo'"),
        ("GRPO", "it is written 'grpo'"),
        ("Dr. GRPO", "it is a loss of GRPO; write training.loss_type = 'dr_grpo'"),
        ("gspo", "training.trl.importance_sampling_level = 'sequence'"),
        ("rlo", "is not known; did you mean 'rloo'"),
        ("magic", "is not known; there are grpo, rloo, or write 'module:Class'"),
    ],
)
def test_a_name_that_is_no_algorithm_here_is_answered(name, answer):
    with pytest.raises(ConfigError, match=answer):
        parse_config({"algorithm": {"type": name}})


@pytest.mark.parametrize("name", [*GONE, *OTHERS])
def test_every_trainer_of_the_list_is_answered_in_any_case(name):
    for spelling in (name, name.upper(), f"{name.title().replace('_', '')}Trainer"):
        with pytest.raises(ConfigError, match=r"there are 'grpo', .* and 'rloo'"):
            parse_config({"algorithm": {"type": spelling}})


def test_trl_has_those_that_it_is_said_to_have_and_not_those_that_are_gone():
    stable = {name.lower() for name in dir(trl) if name.endswith("Trainer")}

    def has(name):
        plain = name.replace("_", "")
        module = EXPERIMENTAL / name / f"{name}_trainer.py"
        return f"{plain}trainer" in stable or module.exists()

    assert [name for name in OTHERS if not has(name)] == []
    assert [name for name in GONE if has(name)] == []
    assert all(has(name) for name in ALGORITHMS)
    assert importlib.util.find_spec("trl.experimental.ppo") is None
    answered = {name.replace("_", "") for name in [*OTHERS, *ALGORITHMS]}
    assert stable <= {f"{name}trainer" for name in answered}
