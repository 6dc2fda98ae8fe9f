"""`bare_run` where a machine of Modal has two H100 and not eight: two of them train on four ranks.

python -m tests.support.modal.small_machines FOLDER RUN_ID [SETTING...]
"""

from mortal_steps.config import gpus
from tests.support.modal.bare_run import main

if __name__ == "__main__":
    gpus.FEWER_PER_CONTAINER["H100"] = 2
    main()
