"""Cases drawn at random: everything that TRL's loop with tools can be given, in combination."""

from __future__ import annotations

import random
from typing import Any

from tests.support.environments.cases import (
    ACCUMULATED,
    CORRECTIONS,
    FIVE,
    LORA,
    LOSSES,
    TABLE,
    TEXT_ALONE,
    Case,
)
from tests.support.environments.models import FAMILIES

SAYS = ("much", "much", "calls", "tools", "parallel", "wrong", "broken", "blocks")


def draw(seed: int, number: int) -> Case:
    """Return a case, the same for the same numbers."""
    drawn = random.Random(f"{seed} {number}")
    family = drawn.choice(list(FAMILIES))
    factories: list[Any] = ["Shop", "AsyncShop", TABLE, None]
    if family not in TEXT_ALONE:
        factories += ["Blocks", {**TABLE, "blocks": "Blocks"}]
    factory = drawn.choice(factories)
    tools = drawn.choice([("lookup", "weigh"), ("weigh",), ("lookup",), ()])
    if factory is None:
        tools = tools or ("lookup", "weigh")
    near = drawn.choice([(), ("near",), ("slowly_near", "told")]) if factory else ()
    prompts = ["plain", "system"]
    if factory is not None and family in FIVE:
        prompts.append("none")
    return Case(
        family=family,
        factory=factory,
        tools=tools,
        functions=(*near, drawn.choice(["seen", "some"])),
        says=drawn.choice(SAYS),
        iterations=drawn.choice([None, None, None, 0, 1, 2, 3]),
        budget=drawn.choice([85, 120, 160, 220, 320]),
        num_steps=drawn.choice([2, 3]),
        prompts=drawn.choice(prompts),
        training=_training(drawn),
    )


def _training(drawn: random.Random) -> dict[str, Any]:
    training: dict[str, Any] = {"loss_type": drawn.choice(LOSSES), "trl": {}}
    if drawn.random() < 0.3:
        training |= LORA
    if drawn.random() < 0.3:
        training |= ACCUMULATED
    if drawn.random() < 0.3:
        training["scale_rewards"] = drawn.choice(["batch", "none"])
    if drawn.random() < 0.3:
        training["trl"]["mask_truncated_completions"] = True
    if drawn.random() < 0.2:
        mode = drawn.choice(CORRECTIONS if training["loss_type"] != "vespo" else CORRECTIONS[:2])
        training["importance_sampling_correction"] = True
        training["trl"]["vllm_importance_sampling_mode"] = mode
    return training
