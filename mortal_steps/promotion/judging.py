"""What a model scores on held-out problems: sampled and scored as a run's own evaluations are.

A judgement's key is a digest of the model, the problems, the settings that decide a score, and the
code of the reward functions. So a model is judged once: a kill costs the shards in flight, and an
incumbent that was judged on the same problems is not judged again. What a reward function or an
environment failed on for one request is scored again when another one asks for the judgement.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from mortal_steps.compute.base import Role
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.pool import Compute
from mortal_steps.config.field_metadata import identity_of
from mortal_steps.data.held_out import eval_set_sizes
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.evaluation import whole_evaluation
from mortal_steps.orchestration.trials.opening import JudgingPlan, in_folder
from mortal_steps.plan.held_out import HeldOutSets
from mortal_steps.promotion.chats import JudgedChats
from mortal_steps.promotion.judged_folder import FOLDER, STEP, JudgedFolder, Judgement
from mortal_steps.report.evaluations import evaluation_scores
from mortal_steps.report.held_out import Scores
from mortal_steps.rewards.sources import digests_of, find_sources
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.files import locked_at_once
from mortal_steps.types import (
    ChatSettings,
    FileRef,
    GenerateRequest,
    HarnessAnswer,
    HarnessRequest,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardFailure,
    RewardRequest,
    WeightsRef,
)

logger = logging.getLogger(__name__)

WORKER = "mortal_steps.rollout.trial:JudgedModelWorker"
DAY_FILE = f"{FOLDER}/day.json"
LOOK_EVERY_S = 0.5
SAID_AT = 2
"""Looks after which it is said for what."""


class Judge:
    """Judges models as a run would be evaluated: on its held-out problems, with its settings."""

    def __init__(
        self,
        store: RunStore,
        run: Run,
        plan: JudgingPlan,
        local: Callable[..., Compute] = LocalCompute,
        problems: Sequence[Problem] | None = None,
        request: str | None = None,
    ) -> None:
        """`store` holds the models and keeps the judgements; `plan` is the run's, with other
        settings for evaluations where they are wanted; `problems` are judged by instead of the
        run's held-out problems. A `request` that is made again, after a kill say, goes on with what
        was scored for it last; without a name, it is another one than any before. Raises
        `ConfigError` where there are no problems."""
        if not (problems or run.info.num_eval_problems or plan.evaluation.harnesses):
            raise ConfigError(
                f"run {run.info.run_id} has no held-out problems to compare models on; train with "
                "data.eval_samples, data.eval_split, data.eval_source or data.eval_sets"
            )
        if problems and plan.by_sets_alone:
            raise ConfigError(
                f"run {run.info.run_id} learns without rewards, and those of its sets score no "
                "other problems; name some in evaluation.functions"
            )
        self._store = store
        self._run = run
        self._plan = plan
        self._local = local
        self._given = list(problems or ())
        self._request = request or uuid.uuid4().hex
        self._chats = JudgedChats(store, run, plan)
        self._folders: dict[str, JudgedFolder] = {}
        self._scores: dict[str, Scores] = {}

    def key(self, path: str, sha256: str) -> str:
        """Return the name of a model's judgement. Other settings lead to another judgement."""
        rewards = self._plan.rewards
        code = (*rewards.code, *self._plan.code.environment.code)
        sources = find_sources(code, self._run.working_dir(), folders=rewards.folders)
        problems = self._problems if self._given else self._run.info.eval_problems
        parts = [sha256, problems.sha256, sources.digest(), self._settings()]
        evaluation = self._held_out.evaluation
        if evaluation.sets or evaluation.decides:
            working_dir, plan = self._run.working_dir(), self._plan.code
            scoring = find_sources(plan.scoring, working_dir, folders=plan.model_folders)
            settings = {
                name: identity_of(each, each.model_dump(mode="json"))
                for name, each in evaluation.sets.items()
            }
            files = digests_of(plan.files, working_dir)
            parts += [evaluation.decides, settings, scoring.digest(), files]
        if (template := self._chats.other_template(path)) is not None:
            parts.append({"chat": template})
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def _settings(self) -> dict[str, Any]:
        """Everything that decides a score besides the model, the problems and the code."""
        plan, trainer, sampling = self._plan, self._plan.trainer, self._plan.sampling
        model, rollout = trainer.model, trainer.rollout
        environment, count = plan.code.environment, sampling.num_evaluated
        return {
            **({"environment": environment.model_dump(mode="json")} if environment.is_used else {}),
            **({"num_generations": count} if count > 1 else {}),
            "rewards": [term.model_dump(mode="json") for term in plan.rewards.all_terms],
            "temperature": sampling.evaluation.temperature,
            "seed": trainer.seed,
            "max_tokens": sampling.evaluation.max_tokens,
            "stop": rollout.stop,
            "engine": [rollout.engine, rollout.engine_options],
            "sampled_in": rollout.published_in(model.dtype),
            "num_shards": sampling.num_shards,
            "threads": plan.threads,
            "model": [model.dtype, model.max_model_len],
            "template": trainer.training.template_options,
        }

    async def judge(self, path: str, sha256: str) -> Judgement:
        """Return the scores of the model in this folder, whose manifest has this digest, computed
        once. Raises what workers raise, `CorruptFileError` for a damaged model."""
        key, request = self.key(path, sha256), self._request
        folder = JudgedFolder(self._store, key, self._held_out, request)
        self._folders[sha256] = folder
        async with self._alone():
            judgement = folder.find()
            if judgement is None:
                self._store.verify_folder(path, sha256)
                folder.begin()
                weights = WeightsRef(version=PolicyVersion(STEP), path=path, sha256=sha256)
                judgement = await self._judge(weights, folder.path)
                folder.keep(judgement)
            # Read here: once it is let go, another request may discard what failed.
            self._scores[sha256] = folder.scores() or Scores({})
            return judgement

    def scores(self, sha256: str) -> Scores:
        """Return what each problem scored with a model that was judged here."""
        return self._scores[sha256]

    def failures(self, sha256: str) -> Sequence[RewardFailure]:
        """Return why completions of a model that was judged here are masked. Raises
        `CorruptFileError`."""
        return self._folders[sha256].failures()

    def forget(self, sha256: str) -> None:
        """Let the next judgement of the model score again what failed in this one."""
        self._folders[sha256].forget()

    @property
    def seed(self) -> tuple[int, int]:
        """The seed of what is drawn for the intervals of a comparison."""
        return self._plan.trainer.seed, STEP

    @property
    def decides(self) -> str:
        """The set whose reward is the `reward`, where one is named."""
        return self._held_out.evaluation.decides

    async def _judge(self, weights: WeightsRef, folder: str) -> Judgement:
        plan = self._plan
        chat = self._chats.settings(weights.path, folder)
        day = self._day(chat)
        if chat is not None:
            self._store.write_record(CHAT_FILE, dataclasses.replace(chat, date=day), ChatSettings)
        whole = whole_evaluation(
            *(self._held_out, STEP, weights, folder),
            problems=self._problems,
            num_shards=plan.sampling.num_shards,
            sampling=plan.sampling.evaluation,
        )
        root, model = self._store.root.absolute(), self._store.path(weights.path).absolute()
        rollout = in_folder(plan.workers["rollout"], root, model_path=str(model), day=day)
        compute = self._local(
            {
                "rollout": dataclasses.replace(rollout, factory=WORKER),
                "reward": in_folder(plan.workers["reward"], root),
            },
            working_dir=self._run.working_dir(),
            log_dir=self._store.path("logs").absolute(),
        )

        async def call(
            kind: type[Any],
            role: Role,
            method: str,
            request: GenerateRequest | RewardRequest | HarnessRequest,
        ) -> Any:
            key = f"evaluate/{STEP}/{request.shard}"
            return await compute.call(role, method, key=key, request=request)

        try:
            scored = await whole.score(call, folder)
        finally:
            await compute.close()
        read = self._store.read_record
        shards = [read(shard.file, RewardedShard) for shard in scored.shards]
        answers = {name: read(each.file, HarnessAnswer) for name, each in scored.harnesses.items()}
        return Judgement(
            num_problems=self._held_out.size(STEP),
            metrics=evaluation_scores(self._held_out, STEP, shards, answers),
        )

    def _day(self, chat: ChatSettings | None) -> str:
        """Return the day that chat templates write into prompts. It is that of the first judgement:
        all models that are compared are asked the same."""
        found = self._store.find_whole(DAY_FILE, str, "models are judged as of another day")
        if found is not None:
            return found[1]
        day = chat.date if chat is not None else None
        day = day or datetime.date.today().isoformat()
        self._store.write_record(DAY_FILE, day, str)
        return day

    @functools.cached_property
    def _held_out(self) -> HeldOutSets:
        """The run's own sets or, of given problems, those without settings of their own."""
        evaluation, given = self._plan.evaluation, self._given
        if given:
            evaluation = evaluation.model_copy(update={"sets": {}, "decides": ""})
        return HeldOutSets(
            rewards=self._plan.training_rewards,
            evaluation=evaluation,
            sizes=eval_set_sizes(given) if given else self._run.info.eval_sets,
            num_problems=len(given) or self._run.info.num_eval_problems,
            num_steps=self._run.info.num_steps,
        )

    @functools.cached_property
    def _problems(self) -> FileRef:
        info, kind = self._run.info, list[Problem]
        problems = self._given or self._run.store.read_record(info.eval_problems, kind)
        path = f"{FOLDER}/problems-{dataset_fingerprint(problems)[:16]}.json"
        return self._store.write_record(path, problems, kind)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """One model of a name is judged at a time: two may not fit the machine."""
        file = self._store.path(f"{FOLDER}/lock")
        for looks in itertools.count():
            with locked_at_once(file) as lock:
                if lock is not None:
                    yield
                    return
            if looks == SAID_AT:
                logger.warning("waits for another judgement, which holds %s", file)
            await asyncio.sleep(LOOK_EVERY_S)
