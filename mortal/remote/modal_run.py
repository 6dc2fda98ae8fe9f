"""What `modal run` does on the user's machine, for the entrypoints of the app.

Each is what the `mortal` command of the same name does, with the work in containers of the app that
`modal run` has started.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from mortal.terminal.output import complain, say
from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.flags import FLAGS


def begin_run(
    orchestrate: Any, config: str | None, run_id: str | None, given: Mapping[str, Any]
) -> None:
    """Begin a run, and let `orchestrate` drive it to its end."""
    from mortal.remote.detach import prepare
    from mortal_steps.places.modal.detached import for_run
    from mortal_steps.plan.loader import load_config
    from mortal_steps.runs.run import new_run_id

    with _explained():
        settings = load_config(_path(config), flags=flags_on_modal(given))
        named = run_id
        if named is None:
            named = settings.run_id or new_run_id(settings.id_prefix)
        settings = settings.model_copy(update={"run_id": named})
        prepare(settings)
        volume = settings.compute.modal.volume
        say(f"run {named} is on Modal; `mortal show {named} --volume {volume}` tells how it goes")
        ended = for_run(orchestrate, settings.compute.modal).remote(settings)
        if ended != "completed":
            complain(f"{named} ended early: {ended}")
            raise SystemExit(1)
        say(f"{named} completed; `mortal fetch {named} --volume {volume}` brings its model here")


def try_rollout(
    functions: Mapping[str, Any], config: str | None, prompt: str | None, given: Mapping[str, Any]
) -> None:
    """Sample a few prompts in a container; `functions` has one for each engine."""
    from mortal.terminal.samples import show_sampled
    from mortal_steps.models.hub import is_hub_model
    from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
    from mortal_steps.orchestration.trials.trial import chosen_problems
    from mortal_steps.places.modal.deployed import for_trial
    from mortal_steps.plan.loader import load_config
    from mortal_steps.plan.parts import Plan

    with _explained():
        settings = resolve_defaults(load_config(_path(config), flags=flags_on_modal(given)))
        if not is_hub_model(settings.model) or settings.model.warm_start is not None:
            raise ConfigError(
                f"model.name_or_path = {settings.model.name_or_path!r}: this samples with a model "
                "of the hub as it is; `mortal test-rollout` takes any other, on this machine"
            )
        if settings.environment.is_used:
            raise ConfigError(
                "[environment]: this samples in a container without your code; "
                "`mortal test-rollout` calls tools, on this machine"
            )
        problems = chosen_problems(Plan(settings).problems, [prompt] if prompt else [])
        sample = for_trial(functions, settings.compute, settings.rollout)
        sampled = sample.remote(Plan(settings).sampler, problems, 1, settings.sampling)
        show_sampled(sampled, as_json=False)


def try_reward(config: str | None, given: Mapping[str, Any]) -> None:
    """Score a completion, with programs in Modal Sandboxes."""
    from mortal.cli.trial import test_reward

    with _explained():
        test_reward(
            config=_path(config),
            overrides=["rewards.sandbox.place=modal"],
            **_flags(given),
        )


def list_checkpoints(run: str | None, volume: str) -> None:
    from mortal.cli.show import list_checkpoints as command

    with _explained():
        command(run, volume=volume)


def clear_cache(model: str | None, yes: bool) -> None:
    from mortal.cli.caching import clear_cache as command

    with _explained():
        command(model, modal=True, yes=yes)


def _path(config: str | None) -> Path | None:
    return Path(config) if config else None


def flags_on_modal(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of a run on Modal by their own names; raises `ConfigError`."""
    return {**_flags(given), "backend": "modal"}


def _flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the flags' own names; rewards, one text here, as a list. Raises
    `ConfigError` for two names of one flag with different values."""
    found: dict[str, Any] = {}
    for flag in FLAGS:
        values = {
            name: given[name] for name in (flag.name, *flag.others) if given.get(name) is not None
        }
        if len(set(values.values())) > 1:
            said = " and ".join(f"--{name.replace('_', '-')} {values[name]}" for name in values)
            raise ConfigError(f"{said} both set {flag.key}; leave one of them out")
        for value in values.values():
            found[flag.name] = value.split(",") if flag.kind is list else value
    return found


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Errors as the `mortal` command has them: a message and exit code 1."""
    try:
        yield
    except MortalError as error:
        complain(str(error))
        raise SystemExit(1) from error
    except typer.Exit as ended:
        raise SystemExit(ended.exit_code) from None
