"""A loss of a user's own: TRL's trainer with another `_compute_loss`, in one file."""

import tomllib

import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer, SFTTrainer

from mortal_steps.errors import ConfigError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from tests.support.docs_examples import settings, write_modules
from tests.support.policy.parity import check_parity, differ, run_stepped
from tests.support.policy.rollouts import make_batch, make_config

TWICE = {"gradient_accumulation_steps": 2, "num_iterations": 2}


class Restated(GRPOTrainer):
    """TRL's loss "grpo", written again; its metrics stay TRL's."""

    def _compute_loss(self, model, inputs):
        logged = super()._compute_loss(model, inputs)  # for the metrics alone
        mask, advantages = inputs["completion_mask"], inputs["advantages"].unsqueeze(1)
        tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attended = torch.cat([inputs["prompt_mask"], mask], dim=1)
        found = self._get_per_token_logps_and_entropies(model, tokens, attended, mask.size(1))[0]
        old = inputs.get("old_per_token_logps")
        ratio = torch.exp(found - (found.detach() if old is None else old))
        clipped = torch.clamp(ratio, 1 - self.epsilon_low, 1 + self.epsilon_high)
        loss = -torch.min(ratio * advantages, clipped * advantages)
        loss = ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
        loss = loss / self.current_gradient_accumulation_steps
        assert torch.equal(loss, logged)
        return loss


class RestatedGRPO(GRPO):
    def trainer_class(self):
        return Restated


class NoneOfThem(GRPO):
    def trainer_class(self):
        return SFTTrainer


class OfAnother(GRPO):
    def trainer_class(self):
        return RLOOTrainer


class Supervised(GRPO):
    trl_config = "SFTConfig"

    def trainer_class(self):
        return SFTTrainer


class Unsaid(TrlAlgorithm):
    def trainer_class(self):
        return GRPOTrainer


@pytest.fixture
def gmpo(tmp_path, monkeypatch):
    """Return the example of docs/extending.md."""
    write_modules("extending.md", "A loss", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tomllib.loads(settings("extending.md", "A loss"))["algorithm"]


@pytest.mark.parametrize("options", [{}, TWICE], ids=["plain", "twice"])
def test_a_loss_that_is_trls_gives_trls_bits(model_path, tmp_path, options):
    own = {"type": f"{__name__}:RestatedGRPO"}
    check_parity(model_path, tmp_path, algorithm=own, loss_type="grpo", **options)


def test_the_loss_of_the_page_begins_as_grpos_and_goes_on_as_its_own(model_path, tmp_path, gmpo):
    """At ratios of 1, its gradient is that of the loss "grpo"."""
    found = {}
    for name, algorithm in (("gmpo", gmpo), ("grpo", {"type": "grpo"})):
        config = make_config(algorithm=algorithm, loss_type="grpo", num_iterations=3)
        found[name] = run_stepped(config, model_path, tmp_path / name, [make_batch(config, 0)])
    first, *later = zip(found["gmpo"].weights, found["grpo"].weights, strict=True)
    for name, theirs in first[1].items():
        torch.testing.assert_close(first[0][name], theirs, rtol=0, atol=1e-5)
    assert all(differ(*pair) for pair in later)
    assert found["gmpo"].metrics[0]["grad_norm"] > 0


def test_its_settings_reach_it_and_options_are_tried_with_it(model_path, tmp_path, gmpo):
    config = make_config(algorithm={**gmpo, "clip_range": 0.1}, trl={"warmup_steps": 1})
    assert algorithm_of(config.algorithm).check(Plan(config).trainer) == ()
    ends = []
    for limit in (0.4, 1e-4):
        config = make_config(algorithm={**gmpo, "clip_range": limit}, num_iterations=3)
        folder = tmp_path / str(limit)
        ends.append(run_stepped(config, model_path, folder, [make_batch(config, 0)]).weights[-1])
    assert differ(*ends)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NoneOfThem", ["SFTTrainer", "GRPOTrainer", "derive"]),
        ("OfAnother", ["RLOOTrainer", "GRPOTrainer", "the trl_config of its trainer"]),
        ("Supervised", ["trl_config = 'SFTConfig'", "GRPOConfig, RLOOConfig", "derive"]),
        ("Unsaid", ["trl_config = None", "GRPOConfig, RLOOConfig", "derive"]),
    ],
)
def test_a_trainer_or_a_configuration_that_no_run_trains_with_is_refused_by_the_check(name, said):
    config = make_config(algorithm={"type": f"{__name__}:{name}"}, trl={"warmup_steps": 1})
    with pytest.raises(ConfigError) as refused:
        algorithm_of(config.algorithm).check(Plan(config).trainer)
    for part in (f"algorithm.type = '{__name__}:{name}'", *said):
        assert part in str(refused.value)
