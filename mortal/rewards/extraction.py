"""What a completion says, without what stands around it: code in fences, tags, thoughts."""

from mortal_steps.rewards.extraction import (
    CodeBlock,
    code_blocks,
    extract_answer,
    extract_code,
    extract_thoughts,
    tagged,
    without_thoughts,
)

__all__ = [
    "CodeBlock",
    "code_blocks",
    "extract_answer",
    "extract_code",
    "extract_thoughts",
    "tagged",
    "without_thoughts",
]
