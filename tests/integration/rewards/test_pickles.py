"""A reward's digest is the same wherever it is taken."""

import subprocess
import sys

import modal

from mortal.rewards import RewardEnvironment, SandboxConfig
from mortal_steps.rewards.pickles.digest import digest_of
from mortal_steps.rewards.pickles.files import read_pickle, write_pickle
from tests.support.paths import ROOT
from tests.support.rewards.digest_script import digests_of


def with_image(*packages):
    """An environment whose programs run in an image of its own."""

    class Numeric(RewardEnvironment):
        sandbox_config = SandboxConfig(image=modal.Image.debian_slim().pip_install(*packages))

    return Numeric()


def image_digests():
    return [digest_of(with_image(*names), "it")[0] for names in (["numpy"], ["numpy", "scipy"])]


def test_an_image_of_modals_travels(tmp_path):
    file, environment = tmp_path / "reward.pickle", with_image("numpy")
    digest, _ = digest_of(environment, "it")
    write_pickle(file, environment, digest, "it")
    read = read_pickle(file, digest, ())
    assert isinstance(read.sandbox_config.image, modal.Image)
    assert digest_of(read, "it")[0] == digest


def test_another_process_finds_the_same_digests():
    """With hash randomization: there, sets come in another order."""
    probe = (
        "from tests.support.rewards.digest_script import digests_of;"
        "from tests.integration.rewards.test_pickles import image_digests;"
        "print(*digests_of(), *image_digests())"
    )
    told = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    images = image_digests()
    assert len(set(images)) == 2
    assert told.stdout.split() == [*digests_of(), *images]
