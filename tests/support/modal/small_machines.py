"""`bare_run` where a machine of Modal has two H100 and not eight: two of them train on four ranks.
Or `mortal deploy` there.

python -m tests.support.modal.small_machines FOLDER RUN_ID [SETTING...]
python -m tests.support.modal.small_machines deploy CONFIG
"""

import sys

from mortal_steps.config import gpus
from tests.support.modal import bare_run

if __name__ == "__main__":
    gpus.FEWER_PER_CONTAINER["H100"] = 2
    if sys.argv[1] == "deploy":
        from mortal.command import main

        main()
    bare_run.main()
