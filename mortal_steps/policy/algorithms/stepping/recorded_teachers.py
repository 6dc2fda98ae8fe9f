"""The trainer behind `algorithm.type = "opd"` (opd.py): TRL's, which is given records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.errors import StoreError
from mortal_steps.policy.algorithms.stepping.trls import trls
from mortal_steps.rewards.token_logprobs import unpacked

ServerDistillationTrainer: Any = trls("ServerDistillationTrainer")


class RecordedTeachersTrainer(ServerDistillationTrainer):  # type: ignore[misc]
    """ServerDistillationTrainer that asks no server."""

    recorded: Mapping[str, Sequence[Any]]

    def __init__(self, *, args: Any, **arguments: Any) -> None:
        """Construct it without the client of a server, which would connect."""
        super(ServerDistillationTrainer, self).__init__(teacher_model=None, args=args, **arguments)
        self.reverse_kl_top_1_mode = args.reverse_kl_top_1_mode
        self.loss_top_k, self.loss_add_tail = args.loss_top_k, args.loss_add_tail

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Add the records, so that TRL shuffles and splits them with their completions. Raises
        `StoreError` for a completion of which no teacher spoke."""
        said = self.recorded.get("teacher_logprobs") or [None] * len(inputs)
        for row, each in zip(inputs, said, strict=True):
            if each is None:
                raise StoreError(
                    "there is no record of what a teacher says of a completion of "
                    f"{row['prompt']}; train on completions that the run's own workers sampled"
                )
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return {**made, "teacher_logprobs": said}

    def _get_teacher_token_logprobs_from_server(
        self, inputs: dict[str, Any], aligned_prompt_length: int
    ) -> Any:
        self.teacher_client = _Recorded(inputs["teacher_logprobs"])
        return super()._get_teacher_token_logprobs_from_server(inputs, aligned_prompt_length)


class _Recorded:
    """Answers as TRL's client of a server does."""

    def __init__(self, said: Sequence[bytes]) -> None:
        self._said = said

    def get_sequence_logprobs(
        self, sequences: Sequence[Sequence[int]], prompt_lengths: Sequence[int], **options: Any
    ) -> dict[str, list[_Numbers]]:
        lengths = [len(ids) - start for ids, start in zip(sequences, prompt_lengths, strict=True)]
        found = [unpacked(each).cut(n) for each, n in zip(self._said, lengths, strict=True)]
        return {
            "logprobs": [_Numbers(each.top_TK) for each in found],
            "logprob_token_ids": [_Numbers(each.top_ids_TK) for each in found],
            "actual_logprobs": [_Numbers(each.sampled_T[:, None]) for each in found],
        }


class _Numbers:
    """An array that is true if it is not empty, as a list is."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._values.astype(dtype)
