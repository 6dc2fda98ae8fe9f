import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import parse_config
from tests.support.refused import refused


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("Dr. GRPO", ["training.loss_type = 'dr_grpo'"]),
        ("dapo", ["training.loss_type = 'dapo'"]),
        ("rlo", ["algorithm", "'rlo'", "'rloo'"]),
        ("PPOTrainer", ["'PPOTrainer'", "grpo, rloo", "module:name"]),
        ("SFTTrainer", ["'SFTTrainer'", "grpo, rloo, sft", "module:name"]),
    ],
)
def test_a_name_that_is_no_algorithm_here_is_answered(name, answer):
    with refused(ConfigError, *answer):
        parse_config({"algorithm": {"type": name}})
