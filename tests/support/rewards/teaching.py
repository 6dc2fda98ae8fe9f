"""Prints what a teacher says, as JSON, by the engine and in the interpreter that it needs.

python -m tests.support.rewards.teaching '{"term": {...}, "prompt_ids": ..., ...}'
"""

import json
import sys

from mortal_steps.rewards.kinds.teacher import TeacherTerm


def main() -> None:
    job = json.loads(sys.argv[1])
    teacher = TeacherTerm.model_validate(job["term"]).load()
    answers = []
    for shard in job["shards"]:
        said: list[str | None] = []
        teacher(
            **shard,
            log_teacher=said.extend,
            log_metric=lambda name, value: None,
        )
        answers.append(said)
    sys.stdout.write(f"{json.dumps(answers)}\n")


if __name__ == "__main__":
    main()
