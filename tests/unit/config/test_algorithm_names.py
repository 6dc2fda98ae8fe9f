import pytest

from mortal_steps.config.loader import parse_config
from mortal_steps.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("Dr. GRPO", r"a loss of GRPO; write training\.loss_type = 'dr_grpo'"),
        ("dapo", r"a loss of GRPO; write training\.loss_type = 'dapo'"),
        ("rlo", "is not known; did you mean 'rloo'"),
        ("PPOTrainer", "is not known; there are grpo, rloo, .*'module:name'"),
        ("SFTTrainer", "is not known; there are grpo, rloo, .*'module:name'"),
    ],
)
def test_a_name_that_is_no_algorithm_here_is_answered(name, answer):
    with pytest.raises(ConfigError, match=answer):
        parse_config({"algorithm": {"type": name}})
