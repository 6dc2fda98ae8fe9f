"""Stock `.train()` of TRL's dataset trainers, and the same rows trained on step by step."""

import dataclasses
import random

import trl
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from mortal_steps.config import DataConfig
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.lora import lora_config
from mortal_steps.policy.batches.prepared_rows import RowIndices
from mortal_steps.policy.checks import check_ranks
from mortal_steps.policy.ranks.crew import Crew
from mortal_steps.policy.ranks.parts import forget_whole
from mortal_steps.types import Problem
from tests.support.policy.stock import fsdp2

LETTERS = "abcdefghijklmnopqrstuvwxyz "
TRAINERS = {
    "sft": (trl.SFTTrainer, trl.SFTConfig),
    "dpo": (trl.DPOTrainer, trl.DPOConfig),
    "kto": (trl.KTOTrainer, trl.KTOConfig),
    "reward": (trl.RewardTrainer, trl.RewardConfig),
}
NO_NUMBERS = ("runtime", "per_second", "epoch", "total_flos", "train_loss")


def texts(count, seed=0, longest=30):
    rng = random.Random(seed)
    return [
        {"text": "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, longest)))}
        for _ in range(count)
    ]


def pairs(count, seed=0):
    return [
        {"prompt": row["text"], "completion": row["text"][::-1]}
        for row in texts(count, seed, longest=9)
    ]


def preferences(count, seed=0):
    return [
        {"prompt": row["prompt"], "chosen": row["completion"], "rejected": row["prompt"]}
        for row in pairs(count, seed)
    ]


def judged(count, seed=0):
    return [{**row, "label": number % 3 != 0} for number, row in enumerate(pairs(count, seed))]


def problems(rows, prefix="train"):
    return [
        Problem(
            id=f"{prefix}-{number}",
            prompt=row.get("prompt", [{"role": "user", "content": ""}]),
            columns={name: value for name, value in row.items() if name != "prompt"},
        )
        for number, row in enumerate(rows)
    ]


def make_config(
    model_path, kind="sft", *, algorithm=None, eval_steps=None, on_start=False, **training
):
    options = {"batch_size": 4, "learning_rate": 1e-3, "num_epochs": 2} | training
    evaluation = {"on_start": on_start} | ({"eval_steps": eval_steps} if eval_steps else {})
    held_out = {"data": DataConfig(eval_samples=1)} if eval_steps else {}
    return RunConfig(
        seed=7,
        model={"name_or_path": str(model_path)},
        algorithm={"type": kind, **(algorithm or {})},
        training=options,
        evaluation=evaluation,
        **held_out,
    )


class Heard(TrainerCallback):
    """What TRL logs, by the update after which it does."""

    def __init__(self):
        self.steps, self.evaluations = {}, []

    def on_log(self, args, state, control, logs=None, **kwargs):
        numbers = {n: v for n, v in logs.items() if not n.endswith(NO_NUMBERS)}
        if "loss" in logs:
            self.steps[state.global_step] = numbers
        elif any(name.startswith("eval_") for name in logs):
            self.evaluations.append((state.global_step, numbers))


def stock(config, model_path, folder, rows, held_out=None):
    """Return what stock `.train()` makes of the rows."""
    training, kind = config.training, config.algorithm.type
    trainer_class, config_class = TRAINERS[kind]
    every = config.evaluation.eval_steps
    dealt_out = fsdp2() if training.sharding == "full" else {}
    if training.ranks > 2:  # they would add gradients up in another order after a restart
        dealt_out = {"ddp_find_unused_parameters": True} | dealt_out
    arguments = config_class(
        **{
            "output_dir": str(folder),
            "seed": config.seed,
            "per_device_train_batch_size": training.batch_size
            // (training.accumulation_steps * training.ranks),
            "gradient_accumulation_steps": training.accumulation_steps,
            "learning_rate": training.learning_rate,
            "num_train_epochs": training.num_epochs,
            "max_steps": training.max_steps,
            "gradient_checkpointing": training.gradient_checkpointing,
            "logging_steps": 1,
            "eval_strategy": "steps" if every else "no",
            "eval_steps": every,
            "eval_on_start": config.evaluation.on_start,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "bf16": False,
            "use_cpu": True,
            **dealt_out,
            **algorithm_of(config.algorithm).options(),
            **{name: None if value == "none" else value for name, value in training.trl.items()},
        }
    )
    heard = Heard()
    cache = folder.parent / "cache" if training.ranks > 1 else None
    given = {"eval_dataset": dataset_of(held_out, cache)} if held_out else {}
    trainer = trainer_class(
        model=str(model_path),
        args=arguments,
        train_dataset=dataset_of(rows, cache),
        peft_config=lora_config(training, algorithm_of(config.algorithm).task),
        callbacks=[heard],
        **given,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return outcome(trainer), heard


def dataset_of(rows, cache=None):
    """Return the rows as a dataset, which ranks share as a file of the cache: TRL has them read
    what the first one writes beside it."""
    if cache is None:
        return Dataset.from_list(rows)
    return Dataset.from_generator(_each, gen_kwargs={"rows": rows}, cache_dir=str(cache))


def _each(rows):
    yield from rows


def outcome(trainer):
    if trainer.is_fsdp_enabled:
        forget_whole(trainer.optimizer)  # stock TRL could not save it
    state = trainer.optimizer.state_dict()
    return {
        "weights": digests.weights_digest(trainer.model),
        "optimizer": digests.digest(state["state"]),
        "groups": digests.digest(state["param_groups"]),
        "schedule": digests.digest(trainer.lr_scheduler.state_dict()),
        "tokens": private.tokens_seen(trainer),
        "reference": digests.weights_digest(trainer.ref_model) if moves(trainer) else "",
    }


def reached(stepper):
    """`outcome` of a stepper, in which all of its ranks take part."""
    found = stepper.digests()
    named = {name: found.get(name, "") for name in ("weights", "optimizer", "reference")}
    trainer = stepper.trainer
    return {
        **named,
        "groups": digests.digest(trainer.optimizer.state_dict()["param_groups"]),
        "schedule": digests.digest(trainer.lr_scheduler.state_dict()),
        "tokens": private.tokens_seen(trainer),
    }


def moves(trainer):
    return getattr(trainer.args, "sync_ref_model", False)


@dataclasses.dataclass
class Stepping:
    """A run of prepared rows, from where it stands."""

    config: RunConfig
    model_path: str
    folder: object

    def prepare(self, rows, held_out=None):
        algorithm = algorithm_of(self.config.algorithm)
        plan = Plan(self.config).trainer
        check_ranks(plan, algorithm)
        algorithm.check(plan)
        algorithm.prepare(
            plan,
            problems(rows),
            problems(held_out or [], "eval"),
            folder=self.folder / "prepared",
        )

    def begun(self, resume_from=None, callback=None):
        """Return a stepper that begins with the model, or from a saved state. The trainer of the
        first rank has the callback."""
        algorithm, plan = algorithm_of(self.config.algorithm), Plan(self.config).trainer
        training = plan.training
        steps = algorithm.num_steps(self.folder / "prepared", training)
        options = {
            "model_path": str(self.model_path),
            "num_steps": steps,
            "output_dir": self.folder / "output",
            "prepared": self.folder / "prepared",
        }
        reference = self.folder / "reference"
        if reference.exists():
            options["reference"] = reference
        if training.ranks == 1:
            stepper = algorithm.stepper(plan, **options)
        else:
            crew = Crew(training.ranks, training.rank_timeout_s, training.sharding)
            stepper = crew.stepper(plan, **options)
        if stepper.has_computed_reference:
            reference.mkdir()
            stepper.save_reference(reference)
        if callback is not None:
            stepper.trainer.add_callback(callback)
        stepper.begin(resume_from)
        return stepper

    def train(self, first=0, *, resume_from=None, save_at=None, orders=None, callback=None):
        """Return the stepper after its last step, with what each step logged and evaluated."""
        algorithm = algorithm_of(self.config.algorithm)
        steps = algorithm.num_steps(self.folder / "prepared", self.config.training)
        stepper = self.begun(resume_from, callback)
        orders = {} if orders is None else orders
        logged, evaluations = {}, []
        if first == 0 and self.config.evaluation.on_start:
            evaluations.append((0, stepper.evaluate()))
        epochs = stepper.epochs
        every = self.config.evaluation.eval_steps
        for step in range(first, steps):
            epoch = epochs.epoch(step)
            if epoch not in orders:
                assert epochs.begins(step)
                orders[epoch] = stepper.draw_order(epoch)
            start = epochs.first_micro_batch(step)
            batch = RowIndices(
                step=step, order=orders[epoch], first=start, stop=start + epochs.accumulation
            )
            random.random()  # others draw, too
            logged[step + 1] = stepper.train_step(batch, seed=step)
            if every and ((step + 1) % every == 0 or step + 1 == steps):
                evaluations.append((step + 1, stepper.evaluate()))
            if step + 1 == save_at:
                (self.folder / "saved").mkdir()
                stepper.save_state(self.folder / "saved")
        return stepper, logged, evaluations
