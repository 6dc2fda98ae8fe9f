"""The process that has imported the tools and environments of a run."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from mortal_steps.config import EnvironmentConfig, ModalConfig, RewardsConfig, RewardTerm
from mortal_steps.environments.messages import Description
from mortal_steps.environments.processes.interpreter import check_interpreter, packages_for
from mortal_steps.environments.table import TRL
from mortal_steps.errors import ConfigError, WorkerLostError
from mortal_steps.hosts.base import ForkingHost, HostLostError
from mortal_steps.hosts.process import HostProcess, without_proxy
from mortal_steps.hosts.relay import Begin
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.rewards.scoring.assignments import SHARE, sandbox_settings
from mortal_steps.sandbox.executors import NOWHERE, ExecutorSettings
from mortal_steps.system.resources import raise_file_limit
from mortal_steps.users_code.loading import import_code

HANDLER = "mortal_steps.environments.inside.handler:EnvironmentHandler"
AGENT_HANDLER = "mortal_steps.environments.inside.agents:AgentHandler"
"""Handler of environments whose code asks the model itself."""
START_S = 600.0
"""Seconds that importing the user's code may take; the code may load a model."""
PREPARE_S = 120.0
"""Seconds that reading the answers that judges were paid for may take."""
SANDBOX_HOST = "mortal_steps.places.modal.environments:sandbox_host"
NO_JUDGE = (
    "an environment in a Modal Sandbox ([compute.modal.environment]) cannot ask a judge: what is "
    "paid for is kept with the run, which is not there; score with the judge in [rewards], or "
    "leave the table out, which has environments in the rollout workers' containers"
)
SAME_SETS = {"PYTHONHASHSEED": "0"}
"""Environment variables that give sets of strings the same order in each process."""


def environment_host(
    environment: EnvironmentConfig,
    terms: Mapping[str, RewardTerm],
    *,
    sandbox: ExecutorSettings | None = None,
    judge: JudgedRun | None = None,
    passed_on: Collection[str] = (),
    before_start: Callable[[], None] | None = None,
    handler: str | None = None,
    modal: ModalConfig | None = None,
) -> ForkingHost:
    """Return the process, not started; `terms` are the stage's rewards by name, `handler` an
    unusual one; `modal` has it in a Modal Sandbox. See `EnvironmentHandler`, `HostProcess`. Its
    start raises `ConfigError`."""

    def check() -> None:
        check_interpreter(environment)
        raise_file_limit()  # three descriptors for each cell here, and one there
        if before_start is not None:
            before_start()

    if environment.type != TRL:  # its instances are none of the user's, whose rewards see none
        terms = {name: term for name, term in terms.items() if term.type == "get_reward"}
    handler = handler or (AGENT_HANDLER if environment.asks else HANDLER)
    if modal is not None:  # where there is neither the run's ledger nor an account on Modal
        sandbox, judge = ExecutorSettings(kind=NOWHERE), JudgedRun(refusal=NO_JUDGE)
    takes_both = handler in (HANDLER, AGENT_HANDLER)
    asks = {"sandbox": sandbox, "judge": judge} if takes_both else {}
    options = {"environment": environment, "terms": dict(terms), **asks}
    variables = {**SAME_SETS, **(without_proxy(os.environ) if environment.asks else {})}
    if modal is not None:
        begin = Begin(
            handler=handler,
            options=options,
            passed_on=passed_on,
            variables=variables,
            start_timeout_s=START_S,
            server=modal.environment.server if modal.environment else (),
        )
        return _in_sandbox(modal, begin, environment, terms, before_start)
    return HostProcess(
        handler,
        options,
        passed_on=passed_on,
        variables=variables,
        before_start=check,
        python=environment.python,
        start_timeout_s=START_S,
    )


def _in_sandbox(
    modal: ModalConfig,
    begin: Begin,
    environment: EnvironmentConfig,
    terms: Mapping[str, RewardTerm],
    before_start: Callable[[], None] | None,
) -> ForkingHost:
    """Return the process in a Modal Sandbox, which is given the code that it imports."""
    host: ForkingHost = import_code(SANDBOX_HOST, "compute.modal.environment")(
        modal,
        begin,
        needed=list(packages_for(environment).values()),
        code=[*environment.code, *(each for term in terms.values() for each in term.code)],
        objects=[*environment.files, *(each for term in terms.values() for each in term.files)],
        before_start=before_start,
    )
    return host


def sandbox_of(
    environment: EnvironmentConfig, rewards: RewardsConfig, app: str
) -> ExecutorSettings:
    """Return where the programs of tools run, by `[rewards.sandbox]`; a cell runs one at a time."""
    settings = sandbox_settings(rewards, app, os.environ)
    return replace(settings, lanes=1, patience_s=SHARE * environment.timeout_s)


class Describer:
    """A worker that says what tools and environments offer, before there is a run."""

    def __init__(
        self,
        *,
        environment: EnvironmentConfig,
        passed_on: Collection[str] = (),
        modal: ModalConfig | None = None,
    ) -> None:
        self._code = environment.code
        self._host = environment_host(environment, {}, passed_on=passed_on, modal=modal)

    def describe(self) -> Description:
        """Return what they offer. Raises `ConfigError` for what cannot be imported or described,
        `WorkerLostError`."""
        try:
            return described(self._host)
        except HostLostError as lost:
            if lost.how.endswith("SIGKILL"):  # which no module does to itself
                raise WorkerLostError(
                    "the process that imported [environment] was killed (SIGKILL); memory may have "
                    "run out"
                ) from None
            wrong = f"ended the process ({lost.how}); a module must not end it when it is imported"
            if lost.why == "timeout":
                wrong = f"takes longer than {START_S:g} s"
            raise ConfigError(
                f"[environment]: importing {', '.join(self._code) or 'an object'} {wrong}\n"
                f"{lost.stack}"
            ) from None
        finally:
            self._host.close()


def described(host: ForkingHost) -> Description:
    """Return what the process of a host offers; it is started if need be, and its errors raised."""
    fork = host.fork()
    try:
        found: Description = fork.call("describe", returns=Description, timeout_s=START_S)
        return found
    finally:
        fork.close()
