"""A stage of a recipe that is a Prefect flow of the user's, which has retries of its own."""

import httpx

from tests.support.whole_recipe import record_of

FLOWS = """
from pathlib import Path

from prefect import flow

TRIES = Path("tries.txt")


@flow(retries=2)
def download(out: Path, works_at: int) -> dict[str, float]:
    with TRIES.open("a") as tries:
        tries.write("x")
    if len(TRIES.read_text()) < works_at:
        raise ConnectionError("the host is away")
    (out / "rows.txt").write_text("a")
    return {"tries": works_at}
"""
RECIPE = """
name = "own"

[stages.rows]
type = "function"
call = "flows.py:download"
works_at = 3
"""


def flow_runs(mortal, name):
    """Return the states of the flow's runs and how often each was Running, the first one first."""
    wanted = {"flows": {"name": {"any_": [name]}}, "sort": "START_TIME_ASC"}
    api_url = mortal.env["PREFECT_API_URL"]
    found = httpx.post(f"{api_url}/flow_runs/filter", json=wanted, timeout=30).json()
    return [(each["state_name"], each["run_count"]) for each in found]


def test_a_flow_of_the_user_is_retried_by_prefect_and_made_again_by_resume(mortal):
    (mortal.folder / "flows.py").write_text(FLOWS)
    (mortal.folder / "own.toml").write_text(RECIPE)
    assert "made rows" in mortal("train", "own.toml")
    assert record_of(mortal.folder, "own").stages["rows"].headline == "tries 3"
    assert flow_runs(mortal, "download") == [("Completed", 3)]
    for_good = ("train", "own.toml", "--set", "stages.rows.works_at=9")
    said = " ".join(mortal(*for_good, code=1).split())
    assert "stage rows failed: stages.rows: flows.py:download raised ConnectionError" in said
    assert "the host is away" in said and "`mortal resume own` goes on" in said
    assert record_of(mortal.folder, "own").status == "failed"
    assert "made rows" in mortal("resume", "own")
    assert record_of(mortal.folder, "own").stages["rows"].headline == "tries 9"
    assert flow_runs(mortal, "download") == [("Completed", 3), ("Failed", 3), ("Completed", 3)]
