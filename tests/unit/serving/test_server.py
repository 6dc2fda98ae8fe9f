"""The options of vLLM's server: those of the user come in the place of those that MORTAL sets."""

from mortal_steps.serving.server import replaced

SET = [
    ("--served-model-name", "run", "run@2"),
    ("--max-model-len", "128"),
    ("--host", "127.0.0.1"),
    ("--no-enable-prefix-caching",),
]


def test_options_of_the_user_replace_those_that_are_set():
    assert replaced(SET, ["--max-model-len", "64"]) == [
        *("--served-model-name", "run", "run@2", "--host", "127.0.0.1"),
        *("--no-enable-prefix-caching", "--max-model-len", "64"),
    ]


def test_an_option_is_known_however_it_is_written():
    extra = ["--max_model_len=64", "--enable-prefix-caching", "--served-model-name", "mine"]
    assert replaced(SET, extra) == ["--host", "127.0.0.1", *extra]


def test_other_options_are_added():
    words = [word for option in SET for word in option]
    assert replaced(SET, ["--tensor-parallel-size", "2"]) == [*words, "--tensor-parallel-size", "2"]
