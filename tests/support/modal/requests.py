"""A request as a flow sends it to a container of a run."""

from mortal_steps.places.modal.messages import CallRequest
from mortal_steps.places.modal.release import this_release
from mortal_steps.types import FileRef

REQUEST = CallRequest(
    release=this_release(),
    volume="mortal-runs",
    lease=1,
    settings=FileRef(path="settings/1.json", sha256="1"),
    role="actor",
    method="prepare",
    payload={"step": 3},
    label="start_workers/3/0",
)
