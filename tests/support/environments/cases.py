"""Runs with tools and environments, in each combination that TRL takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mortal_steps.config import EnvironmentConfig, RewardsConfig, RolloutConfig, TrainingConfig
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.environments.kinds.agent import AgentEnvironment
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.types import Problem
from tests.support.environments import code
from tests.support.environments.engine import SCRIPTS, Voice, called
from tests.support.environments.models import FAMILIES, build_model
from tests.support.environments.teaching import WINDOW, teach

AGENTS = "tests.support.environments.agents"
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
    taught: bool = False
    """Whether the engine `transformers` samples from a model that was taught what it may say."""
    prompts: str = "plain"
    """`plain`, with a `system` message, in `blocks` of content, or `none`: `reset` gives them."""


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
        prompt = columns.pop("prompt", NO_PROMPT)
        return Problem(id=f"train-{number}", prompt=prompt, columns=columns)


def build(case: Case, folder: Path) -> CaseRun:
    """Make the model of a case and its configuration."""
    voice, texts = Voice(case.family, **case.template), scripts(case)
    if case.taught:
        build_model(folder, case.family, context=case.context, width=64, window=WINDOW)
        teach(folder, voice.opening, texts)
    else:
        build_model(folder, case.family, context=case.context)
        (folder / SCRIPTS).write_text(json.dumps(texts))
    factories = case.factory if isinstance(case.factory, Mapping) else {"": case.factory}
    kinds = {name: getattr(code, kind) for name, kind in factories.items() if kind}
    scored = dict.fromkeys(k.__name__ for k in kinds.values() if hasattr(k, "get_reward"))
    weights = [1.0, 0.5, 0.25][: len(case.functions)]
    terms = [
        {"type": "function", "function": f"{CODE}:{name}", "weight": weight}
        for name, weight in zip(case.functions, weights, strict=True)
    ]
    terms += [{"type": "get_reward", "environment": name} for name in scored]
    named = {name: f"{CODE}:{kind.__name__}" for name, kind in kinds.items()}
    config = RunConfig(
        seed=11,
        model={"name_or_path": str(folder), "max_model_len": case.context},
        environment=EnvironmentConfig(
            factory=named if isinstance(case.factory, Mapping) else named.get(""),
            tools=tuple(f"{CODE}:{name}" for name in case.tools),
            max_tool_calling_iterations=case.iterations,
            outages=(),
        ),
        rollout=RolloutConfig(
            engine="transformers" if case.taught else SCRIPTED, max_tokens=case.budget
        ),
        rewards=RewardsConfig(terms=tuple(terms)),
        training=TrainingConfig(
            **{
                "batch_size": 2,
                "num_generations": 4,
                "learning_rate": 1e-3,
                "importance_sampling_correction": False,
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
        model_path=str(folder),
        rows=rows(case, list(kinds)),
        functions=[getattr(code, name) for name in case.functions],
        weights=weights,
        tools=[getattr(code, name) for name in case.tools],
        factory=kinds if isinstance(case.factory, Mapping) else kinds.get(""),
        num_steps=case.num_steps,
    )


def asking(run: CaseRun, agent: str, **options: Any) -> CaseRun:
    """Return the run with a function of `agents` in place of its environment and rewards."""
    changes = {
        "environment": AgentEnvironment(agent=f"{AGENTS}:{agent}", **options),
        "rewards": RewardsConfig(terms=({"type": "get_reward", "environment": agent},)),
    }
    return replace(run, config=run.config.model_copy(update=changes))


def rows(case: Case, names: Sequence[str]) -> list:
    """Return the dataset."""
    made = []
    for number in range(4):
        text = f"Count to {number + 3}, with tools."
        prompt: list = [{"role": "user", "content": text}]
        if case.prompts == "blocks":
            prompt = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        if case.prompts == "system":
            prompt = [{"role": "system", "content": "You count."}, *prompt]
        row = {"prompt": prompt, "target": number + 3, "kind": f"kind {number % 2}"}
        if case.prompts == "none":
            del row["prompt"]
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
        "notes": [*(say(called("noted", amount=amount)) for amount in (3, 4, 5)), answer],
        "adds": [say(add), say(called("add", amount=4)), say(add, add), answer],
        "blocks": [say(called("history")), say(called("count")), say(add), answer],
    }
    everything = dict.fromkeys(text for kind in texts.values() for text in kind)
    return {**texts, "much": list(everything)}[case.says]


FIVE = ("qwen3", "qwen2_5", "llama3_2", "gptoss", "gemma4")
TEXT_ALONE = ("qwen2_5", "gptoss")
"""Families whose templates take no blocks of content."""
OTHERS = tuple(name for name in FAMILIES if name not in FIVE)
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
CORRECTIONS = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
LORA = {"use_lora": True, "lora": {"dropout": 0.2}}
BOTH: dict[str, Any] = {"tools": ("lookup", "weigh")}
TABLE = {"shop": "Shop", "slow": "AsyncShop"}
KINDS: dict[str, dict[str, Any]] = {
    "tools": {"factory": None, **BOTH, "says": "tools"},
    "factory": {"says": "calls", "functions": ()},
    "table": {"factory": TABLE, "functions": ("near", "told", "seen")},
    "both": {**BOTH, "functions": ("some", "seen")},
    "async-parallel": {"factory": "AsyncShop", **BOTH, "says": "parallel"},
    "parallel": {**BOTH, "says": "parallel", "functions": ("slowly_near", "seen")},
    "wrong": {"says": "wrong"},
    "broken": {"says": "broken", "functions": ("told", "seen")},
    "overlong": {"says": "calls", "budget": 85},
    "rounds-1": {**BOTH, "iterations": 1},
}
"""What is done with each of the five families."""


def all_cases() -> dict[str, Case]:
    """Return the cases by their names."""
    cases = {
        f"{kind}-{family}": Case(family=family, **settings)
        for kind, settings in KINDS.items()
        for family in FIVE
    }
    for number, loss in enumerate(LOSSES):
        training = {"loss_type": loss, **(ACCUMULATED if number % 2 else {})}
        cases[f"loss-{loss}"] = Case(family=FIVE[number % 5], training=training, **BOTH)
        cases[f"loss-{loss}-lora"] = Case(
            family=FIVE[(number + 2) % 5], training={"loss_type": loss, **LORA}, says="calls"
        )
    for mode in CORRECTIONS:
        training = {
            "loss_type": "grpo",
            "importance_sampling_correction": True,
            "trl": {"vllm_importance_sampling_mode": mode},
        }
        cases[f"correction-{mode}"] = Case(training=training, says="calls", **BOTH)
    for family in OTHERS:
        cases[f"family-{family}"] = Case(family=family, factory=TABLE, functions=("near",), **BOTH)
    masked = {"trl": {"mask_truncated_completions": True}}
    cases |= {
        "rounds-0": Case(iterations=0),
        "rounds-2": Case(iterations=2, family="gemma4", says="calls"),
        "exact-room": Case(budget=71, says="calls"),
        "masked": Case(training=masked, budget=70),
        "masked-lora-accumulated": Case(training={**masked, **LORA, **ACCUMULATED}, budget=90),
        "blocks": Case(factory="Blocks", functions=("near", "seen"), says="blocks"),
        "blocks-llama": Case(
            factory="Blocks", functions=("near",), says="blocks", family="llama3_2"
        ),
        "blocks-prompt": Case(prompts="blocks", says="blocks", functions=("told", "seen")),
        "blocks-of-both": Case(factory="Blocks", prompts="blocks", functions=("near", "seen")),
        "system-prompt": Case(prompts="system", functions=("told", "seen"), family="gemma4"),
        "no-prompt": Case(prompts="none", functions=("told", "seen"), family="qwen2_5"),
        "rewritten-prompt": Case(factory="Rewriting", functions=("told", "seen"), says="calls"),
        "no-thinking": Case(template={"enable_thinking": False}, **BOTH),
        "thinking-gemma": Case(template={"enable_thinking": True}, family="gemma4", **BOTH),
        "little-reasoning": Case(template={"reasoning_effort": "low"}, family="gptoss", **BOTH),
        "dated": Case(template={"date_string": "1 Jan 2026"}, family="llama3_2", **BOTH),
        "batch-scaled": Case(training={"scale_rewards": "batch"}, says="calls"),
        "many-updates": Case(training={"trl": {"steps_per_generation": 2}}, num_steps=3),
        "taught": Case(taught=True, family="qwen2_5", says="calls", budget=160, num_steps=3),
        "taught-grpo": Case(
            taught=True, says="calls", num_steps=3, budget=160, training={"loss_type": "grpo"}
        ),
    }
    return cases


def shortest() -> dict[str, Case]:
    """Return those of them that every run of the tests makes."""
    names = ("table-qwen3", "async-parallel-gemma4", "overlong-llama3_2", "taught")
    return {name: all_cases()[name] for name in names}
