"""A student and its teacher read the same tokens."""

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ConfigError
from mortal_steps.models.shape import find_shape


def check_tokens(student: ModelConfig, teacher: ModelConfig, *, called: str) -> bool:
    """Raise `ConfigError` unless a token is the same text for student and teacher. Return whether
    that is known: not if the teacher has no tokenizer. `called` is the teacher's key."""
    # Imported where used: imports transformers.
    from mortal_steps.policy.starting_model.prompt_lengths import tokenizer_of
    from mortal_steps.rewards.teachers import find_tokenizer

    theirs = find_tokenizer(teacher)
    if theirs is None:
        return False
    ours = tokenizer_of(student)
    different = ours.get_vocab().items() ^ theirs.get_vocab().items()
    if not different:
        return True
    ids = min(token_id for _, token_id in different)
    raise ConfigError(
        f"{called} = {teacher.name_or_path!r}: its tokenizer is not the student's "
        f"({_named(student)}): token {ids} is "
        f"{theirs.convert_ids_to_tokens(ids)!r} to it and {ours.convert_ids_to_tokens(ids)!r} to "
        "the student. Distillation compares the two at each token; choose a teacher of the same "
        "family"
    )


def check_sizes(student: ModelConfig, teacher: ModelConfig, *, called: str, remedy: str) -> None:
    """Raise `ConfigError`, with this `remedy`, for a teacher whose vocabulary has another size than
    the student's, where both are known."""
    theirs, ours = find_shape(teacher), find_shape(student)
    if theirs is None or ours is None or theirs.vocabulary == ours.vocabulary:
        return
    raise ConfigError(
        f"{called} = {teacher.name_or_path!r} has a vocabulary of {theirs.vocabulary:,} tokens, "
        f"and the student ({_named(student)}) one of {ours.vocabulary:,}. {remedy}"
    )


def _named(student: ModelConfig) -> str:
    return "[model.new]" if student.new else student.name_or_path
