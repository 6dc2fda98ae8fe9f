"""What TRL and its libraries warn of reaches the user, without what nobody can act on."""

import logging
import warnings

import pytest

from mortal_steps.policy.library_warnings import MOST, LibraryWarnings


@pytest.fixture
def collected():
    return LibraryWarnings()


def warn_in(module, text, category=UserWarning):
    """`warnings.warn` in a module of this name, which blames whoever has called it."""
    code = "import warnings\ndef warn(text, category):\n    warnings.warn(text, category, 2)\n"
    names = {"__name__": module}
    exec(code, names)
    names["warn"](text, category)


def collect(collected, *calls):
    with collected.collecting(), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with collected.collecting():  # below pytest's own hook
            for call in calls:
                call()
    return collected.take()


def test_warnings_of_the_libraries_alone_are_collected(collected):
    said = collect(
        collected,
        lambda: logging.getLogger("trl.trainer.grpo_trainer").warning("sums %s", "tokens"),
        lambda: logging.getLogger("trl.trainer.grpo_trainer").info("a step"),
        lambda: logging.getLogger("mortal_steps.policy").warning("ours"),
        lambda: warn_in("peft.tuners", "no layer"),
        lambda: warn_in("torch.nn", "a kernel"),
    )
    assert said == ("trl warns: sums tokens", "peft warns: no layer")
    logging.getLogger("trl.trainer").warning("outside")
    assert collected.take() == ()


def test_each_is_collected_once_whatever_values_it_ends_in(collected):
    trl = logging.getLogger("trl.trainer")
    begins = "All reward functions returned None for the following kwargs of this batch of rows:\n"
    (first,) = collect(collected, *[lambda n=n: trl.warning(f"{begins}{n}") for n in (1, 22)])
    assert first.endswith("rows: 1")
    assert collect(collected, lambda: trl.warning(f"{begins}x")) == ()


def test_deprecations_and_what_the_libraries_do_of_themselves_are_left_out(collected):
    transformers = logging.getLogger("transformers.x")
    said = collect(
        collected,
        lambda: warn_in("transformers.x", "use y", FutureWarning),
        lambda: warn_in("trl.x", "use y", DeprecationWarning),
        lambda: transformers.warning("The model is already on multiple devices. Skipping the move"),
        lambda: transformers.warning("`torch_dtype` is deprecated! Use `dtype` instead!"),
        lambda: transformers.warning("`use_cache=True` is incompatible with checkpointing"),
    )
    assert said == ()


def test_there_are_never_more_than_a_handful_and_none_is_long(collected):
    trl = logging.getLogger("trl.trainer")
    said = collect(collected, *[lambda a=a: trl.warning(a * 5000) for a in "abcdefghij"])
    assert len(said) == MOST
    assert all(len(text) < 700 for text in said)
