"""A student and its teacher read the same tokens."""

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import tokenizer_folder


def check_tokens(student: ModelConfig, teacher: ModelConfig, *, called: str) -> bool:
    """Raise `ConfigError` unless a token is the same text for student and teacher. Return whether
    that is known: not if the teacher has no tokenizer. `called` is the teacher's key."""
    # Imported where used: imports transformers.
    from transformers import AutoTokenizer

    from mortal_steps.policy.starting_model.new_model import build_tokenizer
    from mortal_steps.rewards.teachers import find_tokenizer

    theirs = find_tokenizer(teacher)
    if theirs is None:
        return False
    if student.new is not None:
        ours = build_tokenizer(student.new)
    else:
        trusted = student.trust_remote_code
        ours = AutoTokenizer.from_pretrained(tokenizer_folder(student), trust_remote_code=trusted)
    different = ours.get_vocab().items() ^ theirs.get_vocab().items()
    if not different:
        return True
    ids = min(token_id for _, token_id in different)
    raise ConfigError(
        f"{called} = {teacher.name_or_path!r}: its tokenizer is not the student's "
        f"({'[model.new]' if student.new else student.name_or_path}): token {ids} is "
        f"{theirs.convert_ids_to_tokens(ids)!r} to it and {ours.convert_ids_to_tokens(ids)!r} to "
        "the student. Distillation compares the two at each token; choose a teacher of the same "
        "family"
    )
