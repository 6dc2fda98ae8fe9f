"""What real teachers say of made-up rollouts, and stock TRL's client that is told the same."""

import base64
import dataclasses
import functools
import json

import torch

from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.teacher_model import TeacherModel
from mortal_steps.rewards.token_logprobs import unpacked
from mortal_steps.scores import reward_weights


def taught(config, groups):
    """Return the groups, each taught by the teacher that its turn it is, as reward workers have it
    done: with a column, teachers take turns."""
    terms = config.algorithm.teacher_terms(config.rollout.temperature)
    return [_taught(config, terms[n % len(terms)], group) for n, group in enumerate(groups)]


def _taught(config, term, group):
    columns = {**group.problem.columns, **({term.column: term.teacher} if term.column else {})}
    said = []
    completions = [rollout.completion.token_ids for rollout in group.rollouts]
    scores = _model(term)(
        prompt_ids=[group.prompt_ids] * len(completions),
        completion_ids=completions,
        log_teacher=said.extend,
        log_metric=lambda name, value: None,
        **{name: [value] * len(completions) for name, value in columns.items()},
    )
    assert scores == [None] * len(completions)
    silent = dict.fromkeys(reward_weights(config.rewards_and_teachers))
    rollouts = [
        dataclasses.replace(
            rollout,
            rewards={**silent, **rollout.rewards},
            teacher_logprobs=base64.b64decode(each),
        )
        for rollout, each in zip(group.rollouts, said, strict=True)
    ]
    problem = dataclasses.replace(group.problem, columns=columns)
    return dataclasses.replace(group, problem=problem, rollouts=rollouts)


@functools.cache
def _model_of(term):
    return TeacherModel(TeacherTerm.model_validate_json(term))


def _model(term):
    before = torch.get_num_threads()
    model = _model_of(term.model_dump_json())
    torch.set_num_threads(before)
    return model


class ClientOfRecords:
    """In the place of TRL's VLLMClient: answers what is recorded of these tokens, in JSON."""

    def __init__(self, batches):
        self._answers = {}
        for batch in batches:
            for group in batch.groups:
                for rollout in group.rollouts:
                    self._keep(group.prompt_ids, rollout)

    def _keep(self, prompt_ids, rollout):
        said = unpacked(rollout.teacher_logprobs)
        answer = {
            "logprobs": said.top_TK.tolist(),
            "logprob_token_ids": said.top_ids_TK.tolist(),
            "actual_logprobs": said.sampled_T[:, None].tolist(),
        }
        ids = [*prompt_ids, *rollout.completion.token_ids]
        # Of each beginning, too: what is trained on may be cut.
        for stop in range(len(prompt_ids), len(ids) + 1):
            part = {name: rows[: stop - len(prompt_ids)] for name, rows in answer.items()}
            self._answers[json.dumps([ids[:stop], len(prompt_ids)])] = json.dumps(part)

    def __call__(self, *, base_url, connection_timeout):
        return self

    def get_sequence_logprobs(self, sequences, prompt_lengths, top_logprobs, temperature):
        asked = zip(sequences, prompt_lengths, strict=True)
        rows = [json.loads(self._answers[json.dumps([ids, start])]) for ids, start in asked]
        return {name: [row[name] for row in rows] for name in rows[0]}
