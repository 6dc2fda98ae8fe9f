"""Configurations of small runs with code of a page's sections in them."""

import tomllib
from pathlib import Path

from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from tests.support.docs_examples import settings
from tests.support.forked_commands import ForkedCommand

PAGE = "extending.md"
STEPS = 3
SETTINGS = (f"training.max_steps={STEPS}", "evaluation.eval_steps=0", "rollout.num_shards=2")


def configure(project, run_id, *headings, source=None, **rollout):
    """A configuration with the settings below these headings of the page."""
    values = load_config(project / "tiny.toml", SETTINGS).model_dump()
    for heading in headings:
        for section, changed in tomllib.loads(settings(PAGE, heading)).items():
            values[section] |= changed
    values["rollout"]["source"] = source or values["rollout"]["source"]
    values["rollout"] |= rollout
    (project / f"{run_id}.toml").write_text(dump_toml(parse_config(values)))


def train(script, name):
    """Begin or continue a run with the script of the page; return how it ended."""
    return ForkedCommand([script, f"{name}.toml", name], cwd=Path(script).parent).wait()
