"""What `mortal verify` finds, and what two runs must have in common."""

from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.runs.verify import check_run


def damaged_files(root):
    """Return what `mortal verify` finds."""
    return {
        file.path.resolve(): file.outcome
        for file in check_run(root.parent, root.name).files
        if file.damage
    }


def same_bits(root, whole):
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (root / name).read_bytes() == whole.store.path(name).read_bytes()
    assert weights_digest(root / "final") == weights_digest(whole.store.path("final"))
