"""Runs on rows of a dataset on two ranks: one of each algorithm, of which a rank is killed."""

from tests.support.parity.rows_cases import RowsCase, attempt_rows
from tests.support.policy.rows import judged, preferences, texts
from tests.support.training_forks import training_forks

PATIENCE_S = 300
LORA = {"r": 4, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"], "publish": "adapter"}
CASES = {
    # The last micro-batches of an epoch hold one row that is not filled in: TRL's metrics take the
    # first rank's alone. By length, each rank draws an order of its own in the second epoch.
    "sft": {
        "rows": texts(17),
        "held_out": texts(3, seed=1),
        "settings": {
            "batch_size": 8,
            "gradient_accumulation_steps": 2,
            "eval_steps": 2,
            "trl": {"train_sampling_strategy": "group_by_length", "neftune_noise_alpha": 5.0},
        },
        "killed": (0.5, 1),
    },
    "kto": {
        "rows": judged(11),
        "held_out": judged(3, seed=1),
        "settings": {"eval_steps": 2, "on_start": True, "num_epochs": 1, "trl": {}},
        "killed": (0.0, 0),
    },
    "dpo": {
        "rows": preferences(7),
        "held_out": [],
        "settings": {
            "sharding": "full",
            "gradient_accumulation_steps": 2,
            "trl": {"sync_ref_model": True, "ref_model_sync_steps": 2},
        },
        "killed": (0.0, 1),
    },
    "reward": {
        "rows": preferences(9),
        "held_out": preferences(3, seed=1),
        "settings": {
            "sharding": "full",
            "use_lora": True,
            "lora": LORA,
            "eval_steps": 2,
            "num_epochs": 1,
            "trl": {},
        },
        "killed": (0.5, 0),
    },
}


def check_ranks_of(kind, folder):
    """Stock TRL's ranks, and ours of which one is killed, come to the same bits."""
    settings = {"batch_size": 4, "ranks": 2, **CASES[kind]["settings"]}
    fields = {"kind": kind, "number": 0, "model_seed": 1, "at": 0.5, **CASES[kind]}
    case = RowsCase(**{**fields, "settings": settings})
    processes = training_forks()
    answers = processes.SimpleQueue()
    process = processes.Process(target=_attempt, args=(answers, case, folder))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    trial = answers.get()
    assert (trial.outcome, trial.found) == ("equal", "")


def _attempt(answers, case, folder):
    answers.put(attempt_rows(case, folder))
