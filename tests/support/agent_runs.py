"""The demo with tools in a few steps."""

from tests.support.paths import ROOT

AGENT = ROOT / "examples" / "agent"
FEW_STEPS = {
    "environment": {"factory": f"{AGENT / 'safe.py'}:Safe"},
    "rewards": {"functions": ["rewards.py:asks"]},
    "training": {"max_steps": 3, "batch_size": 2, "num_generations": 6},
    "evaluation": {"eval_steps": 3},
    "checkpoints": {"save_steps": 2},
    "compute": {"local": {"actor": {"threads": 1}}},
}


def merged(values, changes):
    changed = {
        key: merged(values.get(key, {}), value) if isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return {**values, **changed}
