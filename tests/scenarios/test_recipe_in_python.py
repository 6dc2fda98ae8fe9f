"""`mortal.Recipe`: trainers as stages."""

import subprocess
import sys

from tests.support.command import Mortal
from tests.support.kernel import kernel
from tests.support.whole_recipe import digests, record_of, wait_until, write_recipe

SCRIPT = """
import json

import mortal
from rewards import matches

words = [json.loads(line) for line in open("train.jsonl")]
some = {"training.max_steps": 6, "training.batch_size": 4}
recipe = mortal.Recipe("scripted")
rows = [{"prompt": row["prompt"], "completion": row["answer"]} for row in words]
sft = recipe.train("sft", mortal.SFTTrainer(model="base", train_dataset=rows, config=some))
pairs = [
    {"prompt": row["prompt"], "chosen": row["answer"], "rejected": row["answer"][::-1]}
    for row in words
]
few = {"training.max_steps": 3, "training.batch_size": 4}
rm = recipe.train("rm", mortal.RewardTrainer(model=sft.model, train_dataset=pairs, config=few))
grpo = recipe.train(
    "grpo",
    mortal.MortalTrainer(
        model=sft.model,
        reward_funcs=[rm.model, matches],
        train_dataset=words,
        max_steps=2,
        batch_size=2,
        num_generations=2,
        max_completion_length=6,
        config={"rollout.engine": "transformers",
                "data.eval_samples": 4},
    ),
)
recipe.promote("gate", grpo, approval="threshold", min_gain=-10.0)
print([(name, each.state) for name, each in recipe.plan().items()])
results = recipe.run()
print({name: each.status for name, each in results.items()})
"""


def test_trainers_are_stages_and_what_is_complete_is_not_made_again(project, server):
    write_recipe(project)
    (project / "script.py").write_text(SCRIPT)
    mortal = Mortal(project, server.api_url)
    mortal("new-model", "base", "--hidden-size", "16", "--num-layers", "1", "--head-dim", "16")

    def run():
        command = [sys.executable, "script.py"]
        return subprocess.run(command, cwd=project, env=mortal.env, capture_output=True, text=True)

    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    assert (
        "[('sft', 'ready'), ('rm', 'waits'), ('grpo', 'waits'), ('gate', 'waits')]" in first.stdout
    )
    assert "{'sft': 'completed', 'rm': 'completed', 'grpo': 'completed'}" in first.stdout
    made = digests(project, "scripted")
    again = run()
    assert "nothing to do" in again.stdout + again.stderr
    assert digests(project, "scripted") == made


CELL = """
import json

import mortal

words = [json.loads(line) for line in open("train.jsonl")]
rows = [{"prompt": row["prompt"], "completion": row["answer"]} for row in words]
pairs = [
    {"prompt": row["prompt"], "chosen": row["answer"], "rejected": row["answer"][::-1]}
    for row in words
]
some = {"training.max_steps": 24, "training.batch_size": 4, "checkpoints.save_steps": 6}
recipe = mortal.Recipe("noted")
sft = recipe.train("sft", mortal.SFTTrainer(model="base", train_dataset=rows, config=some))
rm = recipe.train("rm", mortal.RewardTrainer(model=sft.model, train_dataset=pairs, config=some))
"""
RUN = "results = recipe.run()\nprint({name: each.status for name, each in results.items()})"


def test_a_cell_that_is_interrupted_in_a_stage_goes_on_when_it_is_run_again(tmp_path, server):
    undisturbed, interrupted = tmp_path / "undisturbed", tmp_path / "interrupted"
    for folder in (undisturbed, interrupted):
        folder.mkdir()
        write_recipe(folder)
        mortal = Mortal(folder, server.api_url)
        mortal("new-model", "base", "--hidden-size", "16", "--num-layers", "1", "--head-dim", "16")
        with kernel(folder, mortal.env) as cells:
            cells.run(CELL)
            if folder == interrupted:
                for stage in ("sft", "rm"):
                    cells.start(RUN)
                    wait_until(folder, stage, 8, cells, "noted")
                    cells.interrupt()
                    status, printed = cells.ended()
                    assert status == "KeyboardInterrupt", printed
                    assert "`mortal resume noted` goes on" in printed
                    assert record_of(folder, "noted").status == "stopped"
            assert "{'sft': 'completed', 'rm': 'completed'}" in cells.run(RUN)
    assert digests(interrupted, "noted") == digests(undisturbed, "noted")
