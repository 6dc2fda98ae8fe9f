"""Workers in Modal containers.

compute.py    `ModalCompute`: which container serves which role
calls.py      one call: submitted once, attached to by whoever comes back, polled to its end
messages.py     what travels: a request there, its result back, and small records in both
mirror.py     other files on their way between this run directory and the Volume
project.py    what is a user's own: code that workers import, model folders
host.py       the inside of a container; knows no Modal
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
