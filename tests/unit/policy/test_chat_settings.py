"""How chats with tools are rendered and read: as GRPOTrainer does it, or refused before the run."""

import logging
from dataclasses import replace
from datetime import datetime

import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from mortal_steps.config import EnvironmentConfig
from mortal_steps.data.problem_files import keep_problems
from mortal_steps.environments.chat import Chat
from mortal_steps.errors import ModelError, StoreError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.actor import Actor
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.store import RunStore
from mortal_steps.store.json_record import pack, unpack
from mortal_steps.types import ChatSettings, Problem
from tests.support.damage import flip_a_byte
from tests.support.environments.models import FAMILIES, Family, build_model, build_tokenizer
from tests.support.refused import refused

TOOLS = EnvironmentConfig(tools=(f"{__name__}:add",))
CHAT = [{"role": "user", "content": "What is 1 + 2?"}]
BARE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def add(one: int, two: int) -> int:
    """Add two numbers.

    Args:
        one: The first.
        two: The second.
    """
    return one + two


def length(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models, by the name of their template."""
    known = {}

    def ask(name):
        if name not in known:
            known[name] = str(build_model(tmp_path_factory.mktemp(name), name))
        return known[name]

    return ask


def config_of(model_path, environment=TOOLS):
    return RunConfig(
        model={"name_or_path": model_path},
        environment=environment,
        rewards={"functions": (f"{__name__}:length",)},
        rollout={"max_tokens": 8},
    )


def actor_of(config, folder):
    return Actor(
        run_dir=str(folder),
        plan=Plan(config).actor,
        fingerprint=config.fingerprint(),
        model_path=config.model.name_or_path,
        num_steps=1,
    )


def store_of(folder):
    """The store of a run with its problems."""
    store = RunStore(folder)
    keep_problems(store, [Problem(id="train-0", prompt=CHAT)], [])
    return store


def check(config):
    problems = [Problem(id="train-0", prompt=CHAT)]
    return actor_of(config, "/dev/null").check(train=problems, held_out=[], sampled=8)


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "llama3_2", "gptoss", "gemma4"])
def test_the_same_is_settled_as_in_a_stock_trainer(name, models, tmp_path):
    stock = GRPOTrainer(
        model=models(name),
        reward_funcs=length,
        tools=[add],
        train_dataset=Dataset.from_list([{"prompt": CHAT}] * 2),
        args=GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, num_generations=2, report_to="none"
        ),
    )
    settled = settle_chat(build_tokenizer(name), name)
    assert settled.chat_template == stock.chat_template
    assert settled.response_template == stock._tokenizer.response_template
    assert (settled.chat_template is None) == (name != "qwen3")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_that_calls_tools_is_settled_and_survives_its_record(name, tmp_path):
    tokenizer = build_tokenizer(name)
    settled = settle_chat(tokenizer, name)
    assert settled.response_template
    assert getattr(tokenizer, "response_template", None) is None, "the tokenizer stays as it is"
    _, content = pack(settled, ChatSettings)
    assert unpack(tmp_path, content.splitlines()[1], ChatSettings) == settled


def test_a_response_template_that_the_tokenizer_brings_is_left_to_it():
    tokenizer = build_tokenizer("qwen2_5")
    tokenizer.chat_template += "{# mine #}"
    tokenizer.response_template = {"fields": {"content": {"content": "text"}}}
    assert settle_chat(tokenizer, "mine") == ChatSettings()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gemma3", r"'gemma3' in TRL\) renders no tool calls"),
        ("deepseekv3", r"'deepseekv3' in TRL\) is none whose calls"),
    ],
)
def test_a_template_that_cannot_do_it_is_refused_by_its_name(name, reason):
    with pytest.raises(ModelError, match=f"my-model: .*{reason}.* qwen2_5, qwen3, "):
        settle_chat(build_tokenizer(name, Family()), "my-model")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "chat template is missing"),
        (BARE, r"none that TRL has\) renders no tool calls"),
        ("{{ messages[0].nothing.at_all }}", r"renders no tool calls"),
        ("own", r"like 'qwen3' in TRL, but not the same text\) is none whose calls"),
    ],
)
def test_an_unknown_template_is_compared_with_the_known_ones(template, reason):
    tokenizer = build_tokenizer("qwen3")
    tokenizer.chat_template = (
        tokenizer.chat_template + "{# mine #}" if template == "own" else template
    )
    with pytest.raises(ModelError, match=f"{reason}.*set `chat_template`"):
        settle_chat(tokenizer, "my-model")


def test_a_schema_of_older_versions_is_refused():
    tokenizer = build_tokenizer("qwen3")
    tokenizer.response_schema = {"type": "object"}
    with refused(ModelError, "`response_schema`", "`response_template`"):
        settle_chat(tokenizer, "my-model")


def test_the_check_before_a_run_refuses_a_model_without_tools(models, tmp_path):
    folder = build_model(tmp_path, "qwen2_5")
    (folder / "chat_template.jinja").write_text(BARE)
    with pytest.raises(ModelError, match=f"cannot be called with {folder}"):
        check(config_of(str(folder)))
    check(config_of(str(folder), EnvironmentConfig()))
    check(config_of(models("qwen3")))


FORGETFUL = """{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}
{% set call = m.tool_calls[0].function %}{% if loop.last or not forgets %}{{ call }}{% endif %}
{% endif %}<|im_end|>{% if refuses and m.role == "tool" %}{{ raise_exception("no tools") }}
{% endif %}{% endfor %}"""
"""Leaves out a call once it is answered, or raises then, if asked to."""


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"forgets": True}, "in another way"), ({"refuses": True}, "TemplateError .*'dummy'")],
)
def test_the_check_refuses_options_with_which_the_template_cannot_do_it(tmp_path, options, reason):
    folder = build_model(tmp_path, "qwen2_5")
    tokenizer = build_tokenizer("qwen2_5")
    tokenizer.chat_template = FORGETFUL
    tokenizer.response_template = {"fields": {"content": {"content": "text"}}}
    tokenizer.save_pretrained(folder)
    config = config_of(str(folder))
    check(config)
    training = config.training.model_copy(update={"trl": {"chat_template_kwargs": options}})
    with pytest.raises(ModelError, match=f"{reason}.*chat_template_kwargs = {{'"):
        check(config.model_copy(update={"training": training}))


def test_the_check_refuses_a_new_model(tmp_path):
    config = config_of("", TOOLS).model_copy(update={"model": RunConfig(model={"new": {}}).model})
    with refused(ModelError, "[model.new]", "chat template"):
        check(config)


def test_a_run_keeps_what_was_settled(models, tmp_path, caplog):
    config = config_of(models("qwen3"))
    store = store_of(tmp_path)
    actor_of(config, tmp_path).prepare(step=0)
    ref, settled = store.find_record(CHAT_FILE, ChatSettings)
    today = datetime.now().date().isoformat()
    assert settled == replace(settle_chat(build_tokenizer("qwen3"), "qwen3"), date=today)
    actor_of(config, tmp_path).prepare(step=0)
    assert store.find_record(CHAT_FILE, ChatSettings) == (ref, settled)
    flip_a_byte(store.path(CHAT_FILE))
    with caplog.at_level(logging.WARNING):
        actor_of(config, tmp_path).prepare(step=0)
    assert store.find_record(CHAT_FILE, ChatSettings) == (ref, settled)
    assert "settled again" in caplog.text


@pytest.mark.parametrize("name", ["llama3_2", "gptoss"])
def test_a_run_that_goes_on_tomorrow_has_the_date_of_its_beginning(name, models, tmp_path):
    store, config = store_of(tmp_path), config_of(models(name))
    tokenizer = build_tokenizer(name)
    begun = replace(settle_chat(tokenizer, name), date="2024-02-29")
    ref = store.write_record(CHAT_FILE, begun, ChatSettings)
    actor_of(config, tmp_path).prepare(step=0)
    assert store.find_record(CHAT_FILE, ChatSettings) == (ref, begun)
    prompts = {
        tokenizer.decode(Chat(tokenizer, settings, {}).prompt_ids(CHAT, []))
        for settings in (begun, replace(begun, date="2026-01-01"), replace(begun, date=None))
    }
    dates = [date for date in ("29 Feb 2024", "2024-02-29") if any(date in p for p in prompts)]
    assert (len(prompts), len(dates)) == (3, 1)


@pytest.mark.parametrize(
    ("name", "environment", "options", "is_warned"),
    [
        ("llama3_2", EnvironmentConfig(), {}, True),
        ("gptoss", EnvironmentConfig(), {}, True),
        ("llama3_2", EnvironmentConfig(), {"date_string": "1 Jan 2026"}, False),
        ("llama3_2", TOOLS, {}, False),
        ("qwen3", EnvironmentConfig(), {}, False),
    ],
)
def test_a_date_that_changes_in_prompts_is_warned_of(name, environment, options, is_warned, models):
    config = config_of(models(name), environment)
    training = config.training.model_copy(update={"trl": {"chat_template_kwargs": options}})
    _, warnings, lengths = check(config.model_copy(update={"training": training}))
    assert any("today's date" in warning for warning in warnings) == is_warned
    assert lengths.longest > 0


def test_a_run_goes_on_with_nothing_else(models, tmp_path):
    config = config_of(models("qwen3"))
    other = ChatSettings(response_template={"fields": {}})
    store = store_of(tmp_path)
    before = store.write_record(CHAT_FILE, other, ChatSettings)
    with refused(StoreError, "chat.json"):
        actor_of(config, tmp_path).prepare(step=0)
    assert store.find_record(CHAT_FILE, ChatSettings) == (before, other)


def test_without_tools_nothing_is_kept(models, tmp_path):
    store = store_of(tmp_path)
    actor_of(config_of(models("qwen3"), EnvironmentConfig()), tmp_path).prepare(step=0)
    assert not store.path(CHAT_FILE).exists()
