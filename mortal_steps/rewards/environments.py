"""Reward environments: rewards that are classes, and run what a completion holds in a sandbox.

    class Runs(RewardEnvironment):
        name = "Runs"

        def score(self, completion, prompt, **kwargs):
            return 1.0 if self.execute_in_sandbox(completion).success else 0.0

An instance is a reward function like any other: it is called as TRL calls one.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from mortal_steps.rewards.base import asked, text_of
from mortal_steps.sandbox.base import ExecutionResult, Limits, Program
from mortal_steps.sandbox.executors import Needs, executor
from mortal_steps.sandbox.pool import Row

NO_PROGRAM = ExecutionResult(
    success=False, stdout="", stderr="no program", exit_code=None, duration=0.0
)
"""Result of a completion without code."""


@dataclass(frozen=True, kw_only=True)
class FunctionConfig(Limits):
    """How `execute_in_function` runs programs: the limits of each, and what they see."""

    image: Any = None
    """A `modal.Image` with Python 3.10 or newer. Where programs do not run on Modal, they see the
    packages installed beside MORTAL."""


@dataclass(frozen=True, kw_only=True)
class SandboxConfig(FunctionConfig):
    """How `execute_in_sandbox` runs programs."""

    allow_unisolated: bool = False
    """If programs cannot be isolated, run them as you, with access to your files and network."""


class RewardEnvironment:
    """Derive from it: define `score`, or `score_batch`."""

    name: ClassVar[str] = ""
    """What it calls itself in the log. In metrics it goes by its class, or by the `name` of its
    term: those names are known before its code is imported."""
    sandbox_config: SandboxConfig = SandboxConfig()
    function_config: FunctionConfig = FunctionConfig()

    _lost: Exception | None = None

    def score(self, completion: str, prompt: str, **kwargs: Any) -> float | None:
        """Return a completion's score, None to abstain; `kwargs` are its row's columns. Several
        threads may call it at a time; see `score_batch`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither score nor score_batch")

    def score_batch(
        self, completions: Sequence[str], prompts: Sequence[str], **kwargs: Any
    ) -> Sequence[float | None]:
        """Scores of all completions, in their order. `kwargs`: columns, one entry per completion.

        This one calls `score` for each, as many at a time as programs run beside each other. What
        each says to `log_extra` stands beside its own completion.
        """
        log_extra = kwargs.pop("log_extra", None)
        rows = _rows(kwargs, len(completions))
        logs: list[dict[str, list[Any]]] = [defaultdict(list) for _ in rows]
        if log_extra is not None:
            for row, log in zip(rows, logs, strict=True):
                row["log_extra"] = partial(_log, log)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            waiting = [
                threads.submit(self.score, completion, prompt, **row)
                for completion, prompt, row in zip(completions, prompts, rows, strict=True)
            ]
            scores = [each.result() for each in waiting]
        for column in dict.fromkeys(name for log in logs for name in log):
            log_extra(column, [value for log in logs for value in log.get(column, [None])])
        return scores

    def prompt_text(self, prompt: Any) -> str:
        """Return the prompt that `score` gets: text, or a chat's last message."""
        return asked(prompt)

    def __call__(self, **kwargs: Any) -> Sequence[float | None]:
        """Return the environment as a reward function, which takes `prompts` and `completions` by
        name.

        Raises what kept programs from being run, above all `SandboxError` for a lost sandbox, also
        where `score` made a number of that.
        """
        self._lost = None
        completions = [text_of(completion) for completion in kwargs.pop("completions")]
        prompts = [self.prompt_text(prompt) for prompt in kwargs.pop("prompts")]
        scores = self.score_batch(completions, prompts, **kwargs)
        if self._lost is not None:
            raise self._lost
        return scores

    def execute_in_sandbox(self, code: str | None, stdin: str = "") -> ExecutionResult:
        """Run a Python program in isolation; see `execute_batch_in_sandbox`."""
        return self.execute_batch_in_sandbox([code], [stdin])[0]

    def execute_batch_in_sandbox(
        self, codes: Sequence[str | None], stdins: Sequence[str] | None = None
    ) -> list[ExecutionResult]:
        """Run Python programs in parallel, in isolation. Returns their results in the same order.

        Whatever a program does is part of its result. None stands for a missing program, which
        counts as a failure: `extract_code` returns it if a text contains no code. Raises
        `SandboxError` if the sandbox itself is lost, and `NoIsolationError` if programs cannot be
        isolated.
        """
        return self._execute_batch(self.sandbox_config, codes, stdins)

    def execute_in_function(self, code: str | None, stdin: str = "") -> ExecutionResult:
        """Run a Python program in a warm process, which is isolated as well."""
        return self.execute_batch_in_function([code], [stdin])[0]

    def execute_batch_in_function(
        self, codes: Sequence[str | None], stdins: Sequence[str] | None = None
    ) -> list[ExecutionResult]:
        return self._execute_batch(self.function_config, codes, stdins)

    def execute_rows(
        self, rows: Sequence[Row], config: FunctionConfig | None = None
    ) -> list[list[ExecutionResult]]:
        """Execute rows of programs: the rows at the same time, the programs of a row one after the
        other."""
        try:
            return executor().pool(self._needs(config or self.sandbox_config)).run_rows(rows)
        except Exception as error:
            self._lost = error
            raise

    def prepare(self) -> None:
        """Have the images built that programs run in, which may take minutes the first time."""
        for config in (self.sandbox_config, self.function_config):
            if config.image is not None:
                executor().prepare(self._needs(config))

    def _needs(self, config: FunctionConfig) -> Needs:
        return Needs(
            who=self.name or type(self).__name__,
            image=config.image,
            memory_mb=config.memory_mb,
            allow_unisolated=self.sandbox_config.allow_unisolated,
        )

    def _execute_batch(
        self, config: FunctionConfig, codes: Sequence[str | None], stdins: Sequence[str] | None
    ) -> list[ExecutionResult]:
        rows = [
            Row(programs=[Program(code=code, stdin=stdin, limits=config)])
            for code, stdin in zip(codes, stdins or [""] * len(codes), strict=True)
            if code is not None
        ]
        results = (results[0] for results in self.execute_rows(rows, config))
        return [NO_PROGRAM if code is None else next(results) for code in codes]


def _log(log: dict[str, list[Any]], column: str, values: Sequence[Any]) -> None:
    log[column].extend(values)


def _rows(columns: Mapping[str, Any], length: int) -> list[dict[str, Any]]:
    """Each completion's own arguments: what is no list of that length is the same for all."""
    own = {
        name: isinstance(column, list | tuple) and len(column) == length
        for name, column in columns.items()
    }
    return [
        {name: column[row] if own[name] else column for name, column in columns.items()}
        for row in range(length)
    ]
