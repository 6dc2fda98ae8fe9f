"""The orders of epochs, as an actor draws them again."""

from types import SimpleNamespace

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy import journal
from mortal_steps.policy.batches import TrainRequest
from mortal_steps.policy.batches.prepared_rows import PreparedRows
from mortal_steps.policy.epochs import draw_order, order_file
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef
from tests.support.refused import refused


def test_an_order_is_not_drawn_again_where_nobody_knows_when_its_epoch_began(tmp_path):
    """It depends on the state at the beginning of its epoch; that of a later step gives another."""
    store = RunStore(tmp_path)
    dataset = FileRef(path="data/prepared/train.arrow", sha256="0" * 64)
    order = FileRef(path=order_file(0), sha256="1" * 64)
    for step in (1, 2):  # the entry of step 0 is lost, and so is the order
        batch = PreparedRows(
            dataset=dataset, order=order, first=2 * step, stop=2 * step + 2, num_rows=8
        )
        request = TrainRequest(step=step, batch=batch, publish=False)
        journal.write_entry(store, journal.JournalEntry(batch_sha256="2" * 64, request=request))
    with refused(CorruptFileError, "orders/000000.json", "step 0 has no whole journal entry"):
        draw_order(store, SimpleNamespace(state=None), epoch=1, step=3)
    assert not store.path(order_file(0)).exists()
