"""What scores a run is killed in mid-step, each process in turn: the run ends with the same bits.

Its completions are scored by programs in the sandbox and by a judge. No score differs from that of
the run that nothing happens to, so none is a 0 that a kill has made up; and the judge is asked
again at most what it was thinking about.
"""

import time

import pytest

from tests.support.chaos.comparison import digests
from tests.support.chaos.processes import kill, process_ids, started_by
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.judge_process import JudgeProcess
from tests.support.project import CONFIG, write_project
from tests.support.undisturbed import begun, undisturbed

STEPS = 6
KILLED_AT = (1, 3)
"""After so many steps."""
SETTINGS = [f"training.max_steps={STEPS}"]
JUDGE_AWAY_S = 1.5
CONCURRENCY = 2

ENVIRONMENT = """
from mortal.rewards import RewardEnvironment

PROGRAM = "import time; time.sleep(0.1); print(sum(map(ord, {said!r})) % 10 + 1)"


class Lottery(RewardEnvironment):
    name = "Lottery"

    def score_batch(self, completions, prompts, answer, **kwargs):
        said = (PROGRAM.format(said=text + right) for text, right in zip(completions, answer))
        results = self.execute_batch_in_sandbox(list(said))
        return [int(result.stdout) / 10 if result.success else 0.0 for result in results]
"""

REWARDS = """
[[rewards.terms]]
type = "environment"
environment = "environments.py:Lottery"

[[rewards.terms]]
type = "judge"
model = "m"
base_url = "{url}"
concurrency = {concurrency}
weight = 0.05
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    write_project(folder)
    (folder / "environments.py").write_text(ENVIRONMENT)
    return folder


@pytest.fixture(scope="module")
def judge(folder):
    judge = JudgeProcess(folder / "asked")
    terms = REWARDS.format(url=judge.url, concurrency=CONCURRENCY)
    config = CONFIG.replace('functions = ["rewards.py:matches"]', terms)
    (folder / "tiny.toml").write_text(config)
    yield judge
    judge.kill()


@pytest.fixture(scope="module")
def expected(folder, judge):
    """Digests of the run that nothing happens to."""
    run = undisturbed(folder, SETTINGS)
    assert set(judge.paid().values()) == {1}
    return digests(run.store.root, STEPS)


def host_of(flow):
    return process_ids(flow, "host")


def lanes_of(flow):
    return [lane for host in host_of(flow) for lane in started_by(host, b"bwrap")]


def servers_of(flow):
    """The fork servers inside the boxes."""
    return [server for lane in lanes_of(flow) for server in started_by(lane)]


def programs_of(flow):
    return [program for server in servers_of(flow) for program in started_by(server)]


def scorer_of(flow):
    return process_ids(flow, "reward-0")


IN_THE_SANDBOX = {"lane": lanes_of, "server": servers_of, "program": programs_of}
BESIDE_THE_JUDGE = {"host": host_of, "worker": scorer_of}


def kill_one(flow, judge, victim):
    """While a program runs, or while the judge thinks."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if victim in IN_THE_SANDBOX:
            found = IN_THE_SANDBOX[victim](flow) if programs_of(flow) else []
        else:
            found = BESIDE_THE_JUDGE[victim](flow) if judge.in_flight() else []
        if found and kill(found[0]):
            return
        time.sleep(0.005)
    pytest.fail(f"there is no {victim} to kill")


def kill_judge(judge):
    while not judge.in_flight():
        time.sleep(0.005)
    judge.kill()
    time.sleep(JUDGE_AWAY_S)
    judge.start()


@pytest.mark.parametrize("victim", [*IN_THE_SANDBOX, *BESIDE_THE_JUDGE, "judge"])
def test_the_same_bits_scores_and_payments(server, folder, judge, expected, victim):
    judge.forget()
    mortal = Mortal(folder, server.api_url)
    run_id = f"without-{victim}"
    begun(folder, SETTINGS, run_id)
    process = mortal.start("resume", run_id)
    for step in KILLED_AT:
        wait_for_step(mortal, run_id, step, process)
        if victim == "judge":
            kill_judge(judge)
        else:
            kill_one(process.pid, judge, victim)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert digests(folder / "runs" / run_id, STEPS) == expected
    again = judge.paid().total() - len(judge.paid())
    assert again <= (0 if victim in IN_THE_SANDBOX else CONCURRENCY * len(KILLED_AT))
