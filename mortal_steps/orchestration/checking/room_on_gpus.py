"""Checks that a run's cards have room for it, and finds the nearest settings that fit."""

import dataclasses
from collections.abc import Iterator, Sequence

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.orchestration.checking.checks import context_of
from mortal_steps.orchestration.checking.forecast import Card, Forecast, gib
from mortal_steps.report.units import counted
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES

VLLM_SEQUENCES = 256
"""Sequences that vLLM samples at once by default, at least."""
FULL = 0.9
"""Part of a card above which a warning is due: what CUDA's allocator cannot use comes on top."""


def warnings_of(found: Forecast) -> tuple[str, ...]:
    """Return a sentence for each card that is nearly full, with the nearest settings that fit.
    Raises `ConfigError` for a card that is too small whatever the batch, and for an engine without
    room for its weights; where the size of the model is a guess, that is a warning as well."""
    warnings: list[str] = []
    for card in _different(found.cards()):
        if card.static > card.gpu.memory:
            warnings.append(
                _refused(
                    found,
                    f"{card.name}: {_static_in_words(card)}, which it does not have. "
                    f"{_what_fits(found, card)}",
                )
            )
            continue
        if card.is_machine:
            warnings += _of_free_memory(found, card)
        else:
            warnings += (*_of_cache(found, card), *_preempting(found, card))
        if card.depends_on_batch and card.most > FULL * card.gpu.memory:
            warnings.append(
                f"{card.name}: the longest batch may take {gib(card.most)} GiB of it, and more "
                f"than {FULL:.0%} may not be usable. {_what_fits(found, card)}"
            )
    if found.placement.gpus and found.shape is None:
        warnings.append(
            "the memory that the run needs is not known: the model's config.json is not here, or "
            "does not use the usual names"
        )
    return tuple(warnings)


def _of_free_memory(found: Forecast, card: Card) -> Iterator[str]:
    """Warn of a machine that has the memory, but not free."""
    if card.free is not None and card.free < card.most <= FULL * card.gpu.memory:
        yield (
            f"{card.name}: the run may take {gib(card.most)} GiB, and {gib(card.free)} GiB are "
            f"free now. End other programs, or choose. {_what_fits(found, card)}"
        )


def _refused(found: Forecast, problem: str) -> str:
    """Raise `ConfigError`; a warning instead if the size of the model is a guess."""
    if found.shape is not None and found.shape.counted:
        raise ConfigError(problem)
    return f"{problem}. This is a guess: the model's parameters could not be counted here"


def _static_in_words(card: Card) -> str:
    parts = []
    if card.training is not None:
        parts.append(f"weights, gradients and optimizer take {gib(card.training.static)} GiB")
    if card.engines:
        taken = sum(engine.fixed for engine in card.engines)
        parts.append(f"{counted(len(card.engines), 'rollout worker')} {gib(taken)} GiB")
    return " and ".join(parts)


def _of_cache(found: Forecast, card: Card) -> Iterator[str]:
    """Warn of too little room for one sequence's cache; refuse too little for the weights."""
    options, named = found.sampling.engine_options, found.sampling.engine
    if ENGINES.entry(named or ALWAYS_THERE).memory_option is None:
        return
    longest = _number(options.get("max_model_len"), context_of(found.plan.trainer.model))
    remedy = (
        "Raise rollout.engine_options.gpu_memory_utilization, lower model.max_model_len, or give "
        "it a GPU of its own"
    )
    for engine in dict.fromkeys(card.engines):
        if engine.reserved < engine.weights:
            yield _refused(
                found,
                f"{card.name}: {named} gets {gib(engine.reserved)} GiB of it, and its weights take "
                f"{gib(engine.weights)} GiB. {remedy}",
            )
        elif engine.tokens < longest:
            yield (
                f"{card.name}: with {gib(engine.reserved)} GiB of it, {named} has room for the "
                f"keys and values of about {engine.tokens:,} tokens, and does not start without "
                f"room for one sequence of {longest:,}. {remedy}"
            )


def _number(value: object, usual: int) -> int:
    """Return an engine's option, unless it is given in a way that the engine alone knows."""
    return value if type(value) is int and value > 0 else usual


def _preempting(found: Forecast, card: Card) -> Iterator[str]:
    """Warn of an engine that cannot hold all sequences that it samples at once."""
    rollout = found.plan.trainer.rollout
    if rollout.engine_kind.memory_option is None:
        return
    at_once = _number(rollout.engine_options.get("max_num_seqs"), VLLM_SEQUENCES)
    sequences = min(found.rows_per_shard, at_once)
    for engine in dict.fromkeys(card.engines):
        fit = engine.tokens // (found.prompt + found.plan.max_tokens)
        if fit < sequences:
            fewer = f"rollout.engine_options.max_num_seqs = {fit}, " if fit else ""
            yield (
                f"{card.name}: {rollout.engine} has room for {fit} of the {sequences} "
                "sequences of full length that it samples at once. It preempts some that grow as "
                "long, and a shard that is sampled again may then differ. Set "
                f"{fewer}a lower rollout.max_tokens, or more memory"
            )


def _what_fits(found: Forecast, card: Card) -> str:
    """Name the nearest setting of each key with which the cards have room."""
    fitting: dict[str, str] = {}
    for overrides in (*_of_sampling(found), *_of_training(found)):
        key = overrides[0].partition(" = ")[0]
        if key in fitting:
            continue
        other = dataclasses.replace(found, plan=found.plan.changed(overrides))
        batches = [each for each in other.cards() if each.depends_on_batch]
        if all(each.most <= FULL * each.gpu.memory for each in batches):
            fitting[key] = " with ".join(overrides)
    larger = f"a {'machine' if card.is_machine else 'GPU'} with {gib(card.most / FULL)} GiB"
    return f"What fits: {'; or '.join([*fitting.values(), larger])}"


def _of_sampling(found: Forecast) -> Iterator[tuple[str, ...]]:
    """Yield settings of rollout workers that need less memory, each key's from the nearest on."""
    plan, rollout = found.plan, found.plan.trainer.rollout
    kind = rollout.engine_kind
    if not found.placement.engines:
        return
    for workers in range(len(found.placement.engines) - 1, 0, -1) if found.on_cpu else ():
        yield (f"rollout.num_rollout_workers = {workers}",)
    if kind.memory_option is None:  # its keys and values are those of a shard
        for count in range(plan.num_shards + 1, plan.trainer.training.batch_size + 1):
            yield (f"rollout.num_shards = {count}",)
    elif found.placement.shares:
        for share in (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1):
            yield (f"rollout.engine_options.{kind.memory_option} = {share}",)
        alternates = not rollout.staleness and rollout.source == GENERATE
        if kind.sleeps and alternates and plan.compute.place.here:
            yield ("rollout.sleep_while_training = true",)


def _of_training(found: Forecast) -> Iterator[tuple[str, ...]]:
    """Yield settings of the actor that need less memory, each key's from the nearest on."""
    model, training = found.plan.trainer.model, found.plan.trainer.training
    if not training.gradient_checkpointing:
        yield ("training.gradient_checkpointing = true",)
    own = training.rows // training.ranks
    for count in range(training.accumulation_steps + 1, own + 1):
        if own % count == 0 and "steps_per_generation" not in training.trl:
            yield (f"training.gradient_accumulation_steps = {count}",)
    for part in (2, 4, 8):
        yield (
            f"training.max_completion_length = {max(1, training.max_completion_length // part)}",
        )
    half = 'model.dtype = "bfloat16"'
    if training.ranks > 1 and not model.quantization and not training.use_lora:
        yield ('training.sharding = "full"',)
    if not training.use_lora:
        yield ("training.use_lora = true",)
        if not found.on_cpu:  # where bfloat16 may be many times slower
            yield ("training.use_lora = true", half)
    elif model.dtype == "float32" and not found.on_cpu:
        yield (half,)


def _different(cards: Sequence[Card]) -> list[Card]:
    found = {(card.gpu.name, card.static, card.most): card for card in reversed(cards)}
    return list(reversed(found.values()))
