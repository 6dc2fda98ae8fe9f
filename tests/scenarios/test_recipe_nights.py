"""Three nights of a deployed recipe: one is killed and asks a person, one has nothing new to ask,
and one has new rows."""

import json

from tests.support.command import Mortal
from tests.support.deployments import PATIENCE_S
from tests.support.nights import deployed_recipe, let_it_be_night
from tests.support.recovery import automations, mortal
from tests.support.whole_recipe import (
    digests,
    kill_recipe,
    kill_stage,
    left_running,
    record_of,
    wait_until,
    write_recipe,
)

__all__ = ["automations", "mortal"]

RECOVERS_WITHIN_S = 2 * PATIENCE_S
PAIR = {"prompt": "abc", "chosen": "cba", "rejected": "abc"}


class Alive:
    """The process that drives the recipe, which is no child of this one."""

    def poll(self):
        return None


def write_nights(folder):
    """The recipe of next to no size, with a gate that asks a person."""
    file = write_recipe(folder)
    by_threshold = 'approval = "threshold"\nmin_gain = -10.0'
    file.write_text(file.read_text().replace(by_threshold, 'approval = "person"'))


def answer(prefect, flow_run_id, decision):
    """Do what the form of *Resume* does; return the message that the flow run ends with."""
    given = {"run_input": {"decision": decision, "by": "Ada", "why": "she has looked"}}
    said = prefect.http.post(f"/flow_runs/{flow_run_id}/resume", json=given)
    assert said.json()["status"] == "ACCEPT", said.text
    return ended(prefect, flow_run_id, "Completed")


def ended(prefect, flow_run_id, *names):
    prefect.wait_for(flow_run_id, *names, within_s=RECOVERS_WITHIN_S)
    return prefect.http.get(f"/flow_runs/{flow_run_id}").json()["state"]["message"]


def test_killed_it_comes_back_asked_it_waits_and_with_new_rows_it_makes_what_depends_on_them(
    prefect, server, automations, tmp_path
):
    write_nights(tmp_path)
    first, second, third = deployed_recipe(prefect, tmp_path, "nightly-words", "words.toml")
    with prefect.worker():
        let_it_be_night(prefect, first["id"])
        wait_until(tmp_path, "sft", 8, Alive())
        kill_stage(tmp_path, "sft")
        kill_recipe(tmp_path)
        states = prefect.wait_for(first["id"], "Suspended", within_s=RECOVERS_WITHIN_S)
        assert "Crashed" in states and states.count("Running") == 2
        assert record_of(tmp_path).status == "waiting"

        let_it_be_night(prefect, second["id"])
        said = ended(prefect, second["id"], "Completed")
        assert said.startswith("stage gate waits for a decision: press Resume, in the menu ⋮, at ")
        assert said.endswith(f"/{first['id']}")

        assert answer(prefect, first["id"], "promote") == "made gate; complete before: 3"
        made = digests(tmp_path)

        with (tmp_path / "pairs.jsonl").open("a") as pairs:
            pairs.write(f"\n{json.dumps(PAIR)}")
        let_it_be_night(prefect, third["id"])
        prefect.wait_for(third["id"], "Suspended", within_s=RECOVERS_WITHIN_S)
        answer(prefect, third["id"], "refuse")
    anew = digests(tmp_path)
    assert anew["sft"] == made["sft"]
    assert {name for name in made if anew[name] != made[name]} == {"rm", "grpo", "gate"}
    assert "refused by Ada" in record_of(tmp_path).stages["gate"].headline
    assert left_running(server.api_url) == []
    whole = tmp_path / "undisturbed"
    whole.mkdir()
    write_recipe(whole)
    Mortal(whole, server.api_url)("train", "words.toml")
    trained = ("sft", "rm", "grpo")
    assert {name: made[name] for name in trained} == {n: digests(whole)[n] for n in trained}
