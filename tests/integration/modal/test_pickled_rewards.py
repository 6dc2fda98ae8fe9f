"""Rewards that were given as objects, scoring in containers of Modal's."""

import asyncio
import json
import sys

from mortal.trainer.objects.rewards import terms_of
from mortal_steps.orchestration.open_run import open_run
from tests.support import bare_flow
from tests.support.modal.project import ON_MODAL, SHORT, project
from tests.support.modal.scored import scored

COMPLETIONS = ("ba", "b", "fedcba", "")
HELPERS = "def length(text): return float(len(text))"
SCRIPT = """
from own_helpers import length

SCALE = 2.0


def longer(bonus):
    return lambda completions, **kwargs: [bonus + SCALE * length(text) for text in completions]
"""


def test_a_closure_of_a_script_scores_in_a_container(plane, tmp_path, monkeypatch):
    with bare_flow.bare_in(tmp_path):
        (tmp_path / "own_helpers.py").write_text(HELPERS)
        monkeypatch.syspath_prepend(tmp_path)
        script = {"__name__": "__main__"}
        exec(SCRIPT, script)
        (term,) = terms_of(script["longer"](0.5), None, str(tmp_path / "runs"))
        assert term["modules"] == ["own_helpers.py"]
        del sys.modules["own_helpers"]
        settings = (*ON_MODAL, *SHORT, "compute.modal.rewards=modal", "rewards.dry_run=false")
        table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in term.items())
        named = ("rewards.functions=[]", f"rewards.terms=[{{{table}}}]")
        run = open_run(project(tmp_path, "pickled", *settings, *named))
        rewarded, _ = asyncio.run(scored(run, COMPLETIONS))
    (scores,) = rewarded.rewards
    assert [row["lambda"] for row in scores] == [0.5 + 2.0 * len(text) for text in COMPLETIONS]
