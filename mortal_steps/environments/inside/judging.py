"""What a process of environments has for users' code beside them: judges, and where programs of a
model run."""

from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.judge.ledger import JudgedRun, share_ledger, use_run
from mortal_steps.sandbox import executors
from mortal_steps.sandbox.executors import ExecutorSettings


class JudgingHandler:
    """Base of handlers whose code may ask a judge and run programs; see `RewardHandler`."""

    def __init__(self, sandbox: ExecutorSettings | None, judge: JudgedRun | None) -> None:
        executors.use_settings(sandbox or ExecutorSettings())
        use_run(judge or JudgedRun())

    def prepare_forks(self) -> None:
        """Do before the fork what each cell would do that asks a judge or a sandbox."""
        share_ledger()
        if RewardEnvironment.__subclasses__():
            executors.prepare_forks()

    def release(self) -> None:
        executors.close()
