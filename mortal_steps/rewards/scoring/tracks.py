"""The processes that a configuration's rewards are called in, and what these are told.

One process has the functions, one each a reward model, and a term that asks for processes of its
own has those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.data.sources import comes_from_gym
from mortal_steps.rewards.host_calls import RewardHost
from mortal_steps.rewards.judge.place import JudgePlace
from mortal_steps.rewards.kinds.model import ModelTerm
from mortal_steps.rewards.reward_model.process import OF_THE_HUB, ModelProcess
from mortal_steps.rewards.scoring.hosts import Host, Track
from mortal_steps.rewards.scoring.program_place import place_settings
from mortal_steps.scores import reward_names


def tracks_of(config: RunConfig, run_dir: Path, before_start: Callable[[], None]) -> list[Track]:
    """What the rewards of `config` are called in, none of it started."""
    terms = dict(zip(reward_names(config.rewards), config.rewards.all_terms, strict=True))
    making = _Making(config, run_dir, before_start, sharing=_num_sharing(config, terms))
    alone = {name for name, term in terms.items() if term.own_processes or _is_model(term)}
    together = {name: term for name, term in terms.items() if name not in alone}
    tracks = [Track(names=tuple(together), hosts=[making.host(together)])] if together else []
    for name in terms:
        if name in alone:
            tracks.append(_of_its_own(name, terms[name], making))
    return tracks


class _Making:
    """Makes hosts, which differ only in their terms."""

    def __init__(
        self, config: RunConfig, run_dir: Path, before_start: Callable[[], None], *, sharing: int
    ) -> None:
        self.config = config
        self._before_start = before_start
        self._passed_on = {*config.compute.local.reward.env, *config.rewards.credentials}
        self._sandbox = place_settings(
            config.rewards, config.compute.modal.app, os.environ, sharing=sharing
        )
        self._judge = JudgePlace(
            run_dir=str(run_dir.absolute()),
            call_timeout_s=config.rewards.timeout_s,
        )

    def host(self, terms: Mapping[str, RewardTerm]) -> Host:
        """A host for functions."""
        return RewardHost(
            terms,
            gym_rows=comes_from_gym(self.config.data),
            sandbox=self._sandbox,
            judge=self._judge,
            passed_on=self._passed_on,
            before_start=self._before_start,
        )

    def model(self, name: str, term: ModelTerm) -> Host:
        """A host for a reward model."""
        return ModelProcess(
            {name: term.with_template(self.config.training.template_options)},
            passed_on={*self._passed_on, *OF_THE_HUB},
            before_start=self._before_start,
        )


def _of_its_own(name: str, term: RewardTerm, making: _Making) -> Track:
    if isinstance(term, ModelTerm):
        return Track(names=(name,), hosts=[making.model(name, term)])
    hosts = [making.host({name: term}) for _ in range(term.own_processes or 1)]
    return Track(names=(name,), hosts=hosts, by_problem=term.by_problem)


def _is_model(term: RewardTerm) -> bool:
    return isinstance(term, ModelTerm)


def _num_sharing(config: RunConfig, terms: Mapping[str, RewardTerm]) -> int:
    """Number of processes with functions, in all reward workers together."""
    shared = any(not term.own_processes and not _is_model(term) for term in terms.values())
    own = sum(term.own_processes or 0 for term in terms.values())
    return config.rewards.num_reward_workers * max(1, shared + own)
