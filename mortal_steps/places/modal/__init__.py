"""Workers in Modal containers.

compute              `ModalCompute`: which container serves which role
calls, retry         one call: submitted once, attached to by whoever comes back, polled to its end
messages             what travels: a request there, its result back, and small records in both
deployed, release    what is deployed, and whether a run can use it
detached             a run that a container drives
gpus, meter          which GPUs are rented, and what they cost
environments         environments in Modal Sandboxes
sandboxes            programs in Modal Sandboxes
files                files on their way between this machine, the Volume and containers
inside               what runs in the containers; imports no Modal
"""

import os
import sys

CLIENT_PATH = "MORTAL_MODAL_CLIENT_PATH"
"""Variable of the processes in a container: where its first one finds Modal's client, which comes
from Modal and may not be in their own environment."""

sys.path.extend(
    folder
    for folder in os.environ.get(CLIENT_PATH, "").split(os.pathsep)
    if folder and folder not in sys.path
)
