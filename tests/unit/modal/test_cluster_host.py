"""The inside of a container that is one of an actor's several."""

from types import SimpleNamespace

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.modal.cluster import ClusterHost
from mortal_steps.config import RunConfig
from mortal_steps.errors import ModelError
from mortal_steps.types import FileRef


class Second(ClusterHost):
    """The second container of a run of a model on the hub, which cannot be reached from here."""

    def __init__(self, runs):
        there = SimpleNamespace(reload=lambda: None, commit=lambda: None)
        options = {"runs_dir": runs, "run_id": "run", "volume": there, "volume_name": "runs"}
        super().__init__(addresses=("127.0.0.1", "127.0.0.1"), number=1, **options)

    def _specs(self, request):
        config = RunConfig(model={"name_or_path": "nobody/nothing"})
        kwargs = {"config": config, "model_path": "nobody/nothing"}
        return {"actor": WorkerSpec(factory="mortal_steps.policy.actor:Actor", kwargs=kwargs)}


def test_each_container_gets_the_model_before_its_ranks_begin(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = FileRef(path="settings.json", sha256="0" * 64)
    found = Second(tmp_path)._prepared(SimpleNamespace(settings=settings, lease=1))
    assert isinstance(found, ModelError)
    assert "nobody/nothing" in str(found)
