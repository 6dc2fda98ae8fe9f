"""`type = "lm_eval"`: tasks of EleutherAI's lm-evaluation-harness, from a folder.

https://github.com/EleutherAI/lm-evaluation-harness
"""

import importlib.util
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from mortal_steps.config.eval_sets import Answer, Harness, Policy
from mortal_steps.config.section import LocalPath
from mortal_steps.errors import HarnessError

INSTALL = "install it where rollout workers run: pip install 'mortal-rl[lm-eval]'"
GENERATES = "generate_until"
REQUEST_S = 24 * 3600
"""Seconds after which a request counts as lost; the harness's own `timeout_s` is about silence."""


class LmEval(Harness, extra="forbid"):
    """Tasks of lm-evaluation-harness. Each document of a task is a problem; its scores are those
    that the task's metrics give it."""

    type: Literal["lm_eval"] = "lm_eval"
    folder: LocalPath
    """Folder with the tasks' YAML files. Their data are files, too, as `dataset_path: json` with
    `data_files` has it, with paths from the folder in which the run began."""
    tasks: tuple[str, ...] = Field(min_length=1)
    """Names of tasks, or of groups of them."""
    limit: int | None = Field(None, ge=1)
    """Use the first N documents of each task. Default: all."""
    num_fewshot: int | None = Field(None, ge=0)
    """Examples before each question. Default: as the task says."""
    batch_size: int = Field(64, ge=1)
    """Documents that are sampled together."""
    chat: bool = False
    """Render prompts with the model's chat template."""

    @property
    def read_files(self) -> tuple[Path, ...]:
        return (Path(self.folder), *super().read_files)

    def check(self) -> None:
        """Load the tasks; raises `HarnessError` for those that cannot be evaluated."""
        for name, task in self._loaded().items():
            kind = task.config.output_type
            if kind != GENERATES:
                raise HarnessError(
                    f"task {name!r} has output_type = {kind!r}: there, a model scores texts that "
                    "are given to it, and the run's endpoint samples alone; name tasks with "
                    f"output_type: {GENERATES}"
                )

    def evaluate(self, policy: Policy) -> Answer:
        lm_eval, manager = _library(), self._manager()
        settings = {
            "model": policy.model,
            "base_url": f"{policy.base_url}/completions",
            "tokenizer": policy.model_folder,
            "tokenizer_backend": "huggingface",
            "tokenized_requests": self.chat,
            "max_length": policy.max_model_len,
            "max_gen_toks": policy.max_tokens,
            "max_retries": 1,
            "timeout": REQUEST_S,
            "seed": policy.seed % 2**31,
        }
        found = lm_eval.simple_evaluate(
            model="local-completions",
            model_args=settings,
            tasks=list(self.tasks),
            num_fewshot=self.num_fewshot,
            batch_size=self.batch_size,
            limit=self.limit,
            bootstrap_iters=0,
            apply_chat_template=self.chat,
            task_manager=manager,
        )
        return dict(_scores(found["samples"]))

    def _manager(self) -> Any:
        _library()
        from lm_eval.tasks import TaskManager

        if not Path(self.folder).is_dir():
            raise HarnessError(f"no such folder: {Path(self.folder).absolute()}")
        return TaskManager(include_path=self.folder, include_defaults=False)

    def _loaded(self) -> Mapping[str, Any]:
        manager = self._manager()
        unknown = [name for name in self.tasks if name not in manager.all_tasks]
        if unknown:
            raise HarnessError(
                f"tasks: {unknown[0]!r} is no task in {self.folder} (there are: "
                f"{', '.join(manager.all_tasks) or 'none'})"
            )
        loaded: Mapping[str, Any] = manager.load(list(self.tasks))["tasks"]
        return loaded


def _library() -> Any:
    if importlib.util.find_spec("lm_eval") is None:
        raise HarnessError(f"lm-evaluation-harness is not installed; {INSTALL}")
    import lm_eval

    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    return lm_eval


def _scores(samples: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterable[tuple[str, Any]]:
    """Return each document with its scores by metric; those of several filters of a task's answers
    are told apart by the filter's name."""
    scores: dict[str, dict[str, float]] = {}
    for task, its in samples.items():
        rows = list(its)
        filters = {row["filter"] for row in rows}
        for row in rows:
            problem = scores.setdefault(f"{task}/{row['doc_id']:06d}", {})
            for metric in row["metrics"]:
                if isinstance(row[metric], int | float):  # else it is of all documents together
                    name = metric if len(filters) == 1 else f"{metric},{row['filter']}"
                    problem[name] = float(row[metric])
    return scores.items()
