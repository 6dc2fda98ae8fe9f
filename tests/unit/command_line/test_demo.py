"""`mortal demo`: what it writes is the shipped demo, wherever one is."""

from pathlib import Path

from mortal.demo import write_demo
from mortal_steps.plan.loader import load_config
from tests.support.paths import ROOT


def test_it_is_the_demo_of_a_clone_with_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = load_config(write_demo(Path("mine")))
    shipped = load_config(ROOT / "deployments/configs/demo.toml")
    rows = {"source": "mine/train.jsonl", "eval_source": "mine/eval.jsonl"}
    data = shipped.data.model_copy(update=rows)
    assert written == shipped.model_copy(update={"data": data})
    for name in ("train.jsonl", "eval.jsonl"):
        assert Path("mine", name).read_text() == (ROOT / "examples/letters" / name).read_text()


def test_files_that_are_there_stay_as_they_are(tmp_path):
    (tmp_path / "train.jsonl").write_text("mine")
    write_demo(tmp_path)
    assert (tmp_path / "train.jsonl").read_text() == "mine"
    assert (tmp_path / "demo.toml").exists()
