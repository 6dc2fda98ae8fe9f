"""Runs with tools and environments, in each combination that TRL takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mortal_steps.config import (
    EnvironmentConfig,
    RewardsConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
)
from mortal_steps.types import Problem
from tests.support.environments import code
from tests.support.environments.engine import SCRIPTS, Voice, called
from tests.support.environments.models import build_model

CODE = code.__name__
SCRIPTED = "tests.support.environments.engine:ScriptedEngine"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What differs between runs."""

    family: str = "qwen3"
    factory: str | Mapping[str, str] | None = "Shop"
    """Names in `code`."""
    tools: Sequence[str] = ()
    functions: Sequence[str] = ("seen",)
    says: str = "much"
    """Which of `SCRIPTS_OF`."""
    iterations: int | None = None
    budget: int = 220
    context: int = 4096
    num_steps: int = 2
    training: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    """Options of the chat template."""
    engine: str = SCRIPTED


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """A case as a run of MORTAL's, and as arguments of GRPOTrainer's."""

    config: RunConfig
    model_path: str
    rows: list
    functions: Sequence[Callable[..., Any]]
    weights: Sequence[float]
    tools: Sequence[Callable[..., Any]]
    factory: Any
    num_steps: int

    def batch(self, step: int) -> list[Problem]:
        """Return the problems of a step, in the dataset's order."""
        size = self.config.training.batch_size
        numbers = [number % len(self.rows) for number in range(step * size, (step + 1) * size)]
        return [self._problem(number) for number in numbers]

    def _problem(self, number: int) -> Problem:
        columns = dict(self.rows[number])
        return Problem(id=f"train-{number}", prompt=columns.pop("prompt"), columns=columns)


def build(case: Case, folder: Path) -> CaseRun:
    """Make the model of a case and its configuration."""
    model_path = str(build_model(folder, case.family, context=case.context))
    (folder / SCRIPTS).write_text(json.dumps(scripts(case)))
    factories = case.factory if isinstance(case.factory, Mapping) else {"": case.factory}
    kinds = {name: getattr(code, kind) for name, kind in factories.items() if kind}
    scored = {kind.__name__: name for name, kind in kinds.items() if hasattr(kind, "get_reward")}
    weights = [1.0, 0.5, 0.25][: len(case.functions)]
    terms = [
        {"type": "function", "function": f"{CODE}:{name}", "weight": weight}
        for name, weight in zip(case.functions, weights, strict=True)
    ]
    terms += [{"type": "get_reward", "environment": name} for name in scored]
    named = {name: f"{CODE}:{kind.__name__}" for name, kind in kinds.items()}
    config = RunConfig(
        seed=11,
        model={"name_or_path": model_path, "max_model_len": case.context},
        environment=EnvironmentConfig(
            factory=named if isinstance(case.factory, Mapping) else named.get(""),
            tools=tuple(f"{CODE}:{name}" for name in case.tools),
            max_tool_calling_iterations=case.iterations,
            outages=(),
        ),
        rollout=RolloutConfig(engine=case.engine, max_tokens=case.budget),
        rewards=RewardsConfig(terms=tuple(terms)),
        training=TrainingConfig(
            **{
                "batch_size": 2,
                "num_generations": 4,
                "learning_rate": 1e-3,
                "max_completion_length": case.budget,
                "gradient_checkpointing": False,
                **case.training,
                "trl": {
                    **case.training.get("trl", {}),
                    **({"chat_template_kwargs": dict(case.template)} if case.template else {}),
                },
            }
        ),
    )
    return CaseRun(
        config=config,
        model_path=model_path,
        rows=rows(case, list(kinds)),
        functions=[getattr(code, name) for name in case.functions],
        weights=weights,
        tools=[getattr(code, name) for name in case.tools],
        factory=kinds if isinstance(case.factory, Mapping) else kinds.get(""),
        num_steps=case.num_steps,
    )


def rows(case: Case, names: Sequence[str]) -> list:
    """Return the dataset."""
    made = []
    for number in range(4):
        prompt = [{"role": "user", "content": f"Count to {number + 3}, with tools."}]
        row = {"prompt": prompt, "target": number + 3, "kind": f"kind {number % 2}"}
        if isinstance(case.factory, Mapping):
            row["environment"] = names[number % len(names)]
        made.append(row)
    return made


def scripts(case: Case) -> list:
    """Return what the model may say."""
    voice = Voice(case.family, **case.template)
    say, answer = voice.calls, voice.text("The total is 7.")
    add, more = called("add", amount=3), called("add", amount=4, what="pears")
    look, heavy, take = (
        called("lookup", word="pears"),
        called("weigh", amount=5),
        called("take", amount=3),
    )
    texts = {
        "calls": [say(add), say(more), answer],
        "tools": [
            *(say(look), say(heavy), say(called("weigh", amount=13))),
            *(say(called("lookup", word="seven")), answer),
        ],
        "parallel": [
            *(say(add, more), say(heavy, add, look), say(look, take, add, heavy, take)),
            *(say(called("weigh", amount=13), called("sub"), look), answer),
        ],
        "wrong": [
            *(say(called("sub", amount=1)), say(called("fail", amount=2)), say(called("fail"))),
            *(say(called("add", amount="many", colour="red")), say(add), answer),
        ],
        "broken": [
            *(voice.broken(add), voice.broken(more), say(add), answer),
            voice.unfinished("The total"),
        ],
        "blocks": [say(called("history")), say(called("count")), say(add), answer],
    }
    everything = dict.fromkeys(text for kind in texts.values() for text in kind)
    return {**texts, "much": list(everything)}[case.says]
