"""What happens to environments in their process; the rounds of stock TRL are compared elsewhere."""

import re

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.config.environment import OUTAGES
from mortal_steps.environments.inside.handler import EnvironmentHandler
from mortal_steps.environments.messages import EpisodeStart, ToolCall
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.calling.calls import CallArguments
from mortal_steps.rewards.kinds.get_reward import GetReward
from mortal_steps.rewards.kinds.users_code import FunctionTerm
from tests.support.environments import users_code

CODE = users_code.__name__
PROMPT = [{"role": "system", "content": "Shop."}, {"role": "user", "content": "Go."}]


def handler_of(factory=None, *, tools=(), terms=None, **options):
    if isinstance(factory, str):
        factory = f"{CODE}:{factory}"
    environment = EnvironmentConfig(
        factory=factory, tools=tuple(f"{CODE}:{tool}" for tool in tools), **options
    )
    return EnvironmentHandler(environment=environment, terms=terms or {})


def start_of(environment="", /, *, prompt=PROMPT, seed=1, reset_seed=7, **row):
    row = {"prompt": prompt, "target": 7, **row}
    return EpisodeStart(
        environment=environment, prompt=prompt, row=row, reset_seed=reset_seed, seed=seed
    )


def opened(handler, *starts):
    return [handler.open(start=start) for start in starts or [start_of()]]


def answers_to(handler, *named, episode=0):
    calls = [
        ToolCall(name=name, arguments=arguments, call_id=f"p/0/{number}")
        for number, (name, arguments) in enumerate(named)
    ]
    return handler.call(episode=episode, calls=calls)


def answer_to(handler, name, episode=0, **arguments):
    (answer,) = answers_to(handler, (name, arguments), episode=episode)
    return answer


def block(text):
    return {"type": "text", "text": text}


def names_of(tools):
    return [tool["function"]["name"] for tool in tools]


def test_tools_are_standalone_ones_and_public_methods_in_the_order_of_trl():
    described = handler_of("Shop", tools=["search"]).describe().environments[""]
    assert names_of(described.tools) == ["search", "add", "ask", "raising", "slow", "told"]
    assert described.reward == "Shop"
    (added,) = (each for each in described.tools if each["function"]["name"] == "add")
    amount = {"type": "integer", "description": "How much to add."}
    assert added["function"]["parameters"]["properties"] == {"amount": amount}


def test_tools_are_described_as_transformers_does():
    from transformers.utils import get_json_schema

    described = handler_of("Shop", tools=["search"]).describe().environments[""]
    shop = users_code.Shop()
    tools = [users_code.search, shop.add, shop.raising, shop.slow, shop.told]
    found = [each for each in described.tools if each["function"]["name"] != "ask"]
    assert found == [get_json_schema(tool) for tool in tools]


def test_a_call_id_is_given_to_a_tool_that_names_it_and_not_shown_to_the_model():
    handler = handler_of("Shop")
    (schema,) = (
        each["function"]["parameters"]
        for each in handler.describe().environments[""].tools
        if each["function"]["name"] == "ask"
    )
    assert (list(schema["properties"]), schema["required"]) == (["text"], ["text"])
    opened(handler)
    assert answer_to(handler, "ask", text="why").content == "p/0/0: why"


def test_tools_alone_have_no_state():
    handler = handler_of(tools=["search"])
    described = handler.describe().environments[""]
    assert (names_of(described.tools), described.reward) == (["search"], None)
    assert (
        described.is_stateless and not handler_of("Shop").describe().environments[""].is_stateless
    )
    (begun,) = opened(handler, start_of(None))
    assert (begun.prompt, begun.failure) == (None, None)
    assert answer_to(handler, "search", query="ab").content == "ba"


def test_the_row_chooses_its_environment_which_reset_is_not_given():
    factory = {"shop": f"{CODE}:Shop", "dice": f"{CODE}:Dice"}
    handler = handler_of(factory)
    shops = handler.describe().environments
    assert names_of(shops["dice"].tools) == ["roll"] and shops["dice"].reward is None
    opened(handler, start_of("shop", environment="shop", kind="a"))
    assert handler._episodes[0].environment.row == {"prompt": PROMPT, "kind": "a"}
    assert answer_to(handler, "roll").content == "{'error': 'Tool roll not found.'}"


def test_a_row_of_a_run_without_names_is_passed_on_whole():
    handler = handler_of("Shop")
    opened(handler, start_of(environment="shop", kind="a"))
    assert handler._episodes[0].environment.row == {
        "prompt": PROMPT,
        "environment": "shop",
        "kind": "a",
    }


@pytest.mark.parametrize(
    ("content", "observed", "last"),
    [
        ("Go.", " Now.", "Go. Now."),
        ("Go.", [block("x")], ["Go.", "x"]),
        ([block("Go.")], "x", ["Go.", "x"]),
        ([block("Go.")], [], ["Go."]),
    ],
)
def test_what_reset_observes_is_appended_to_the_last_message(content, observed, last):
    prompt = [PROMPT[0], {"role": "user", "content": content, "name": "kept"}]
    (begun,) = opened(handler_of("Observing"), start_of(prompt=prompt, observed=observed))
    expected = last if isinstance(last, str) else [block(text) for text in last]
    assert begun.prompt == [PROMPT[0], {"role": "user", "name": "kept", "content": expected}]
    assert prompt[1]["content"] == content


def test_a_reset_that_observes_nothing_leaves_the_prompt():
    assert opened(handler_of("Observing"), start_of(observed=None))[0].prompt is None


@pytest.mark.parametrize(("observed", "last"), [(None, "Now."), (" Or then.", "Now. Or then.")])
def test_a_reset_may_change_the_prompt_in_place_as_trl_has_it(observed, last):
    said = {"role": "user", "content": "Now."}
    (begun,) = opened(handler_of("Observing"), start_of(observed=observed, adds=[said]))
    assert begun.prompt == [*PROMPT, {**said, "content": last}]
    assert len(PROMPT) == 2


@pytest.mark.parametrize(
    ("observed", "told"),
    [(3, "returned int"), ("raise", "raised SystemExit: no .*users_code"), ({}, "returned dict")],
)
def test_what_a_reset_must_not_do_is_its_failure(observed, told):
    (begun,) = opened(handler_of("Observing"), start_of(observed=observed))
    assert begun.prompt is None
    assert re.search(told, begun.failure)


def test_plain_tools_answer_in_their_order_and_async_ones_after_them_beside_each_other():
    handler = handler_of("Shop")
    opened(handler)
    answers = answers_to(
        handler,
        ("slow", {"amount": 9}),
        ("add", {"amount": 1}),
        ("slow", {"amount": 2}),
        ("missing", {}),
        ("slow", {"wrong": 2}),
    )
    assert [each.name for each in answers] == ["add", "missing", "slow", "slow", "slow"]
    # the second `slow` is the first to be done, and wrong arguments are an error at once
    assert [each.content for each in answers[3:]] == ["6.0", "1.5"]
    assert [each.is_error for each in answers] == [False, True, True, False, False]
    assert "unexpected keyword argument 'wrong'" in answers[2].content


@pytest.mark.parametrize(
    ("kind", "content"),
    [("value", "{'error': 'it is value'}"), ("exit", "{'error': 'it is exit'}")],
)
def test_an_exception_of_a_tool_is_told_to_the_model(kind, content):
    handler = handler_of("Shop")
    opened(handler)
    answer = answer_to(handler, "raising", kind=kind)
    assert (answer.content, answer.is_error, answer.outage) == (
        f"{{'error': 'it is {kind}'}}",
        True,
        None,
    )


def test_an_async_tool_that_exits_leaves_the_event_loop_alive():
    handler = handler_of("Shop")
    opened(handler)
    exits, adds = answers_to(handler, ("slow", {"amount": 0}), ("slow", {"amount": 1}))
    assert (exits.content, exits.is_error) == ("{'error': 'async'}", True)
    assert (adds.content, answer_to(handler, "slow", amount=1).content) == ("0.5", "1.0")


@pytest.mark.parametrize("kind", ["refused", "judge", "down"])
def test_an_outage_is_no_answer(kind):
    handler = handler_of("Shop", outages=(*OUTAGES, f"{CODE}:DownError", "not_there:Error"))
    opened(handler)
    answer = answer_to(handler, "raising", kind=kind)
    assert f"it is {kind}" in answer.outage
    assert (answer.content, answer.is_error) == ("", False)


def test_without_outages_all_exceptions_are_answers_but_those_of_judges():
    handler = handler_of("Shop", outages=())
    opened(handler)
    assert answer_to(handler, "raising", kind="refused").content == "{'error': 'it is refused'}"
    assert "it is judge" in answer_to(handler, "raising", kind="judge").outage


def test_an_outage_may_be_a_class_of_the_environments_file():
    file = users_code.__file__
    environment = EnvironmentConfig(factory=f"{file}:Shop", outages=(f"{file}:DownError",))
    handler = EnvironmentHandler(environment=environment, terms={})
    opened(handler)
    assert "it is down" in answer_to(handler, "raising", kind="down").outage
    assert f"{file}:DownError" in environment.code


@pytest.mark.parametrize(
    ("outage", "told"), [("Shop", "users_code:Shop.*exceptions"), ("DownErr", "mean DownError")]
)
def test_an_outage_that_is_no_exception_is_refused_by_its_key(outage, told):
    with pytest.raises(ConfigError, match=rf"environment\.outages: .*{told}"):
        handler_of("Shop", outages=(f"{CODE}:{outage}",))


@pytest.mark.parametrize(
    ("what", "content"), [(0, [block("a")]), (1, "None"), (2, "{'a': 1}"), (5, [1, 2])]
)
def test_a_list_is_content_and_anything_else_is_text(what, content):
    handler = handler_of("Shop")
    opened(handler)
    assert answer_to(handler, "told", what=what).content == content


@pytest.mark.parametrize(("what", "told"), [(3, "an image"), (4, "of what JSON cannot hold")])
def test_blocks_that_a_model_cannot_read_are_a_failure_of_the_call(what, told):
    handler = handler_of("Shop")
    opened(handler)
    with pytest.raises(TypeError, match=rf"the tool 'told'.*{told}"):
        answer_to(handler, "told", what=what)


@pytest.mark.parametrize("observed", [[block("a"), {1, 2}], [block("a"), float("nan")]])
def test_blocks_that_cannot_be_sent_are_a_failure_of_the_reset(observed):
    handler = handler_of("Shop")
    (found,) = opened(handler, start_of(observed=observed))
    assert found.failure is not None
    assert "JSON" in found.failure


def test_a_call_that_cannot_be_made_is_answered_with_its_error():
    handler = handler_of("Shop")
    opened(handler)
    call = ToolCall(name="add", arguments={}, call_id="p/0/0", error="Unsupported: web")
    (answer,) = handler.call(episode=0, calls=[call])
    assert (answer.content, answer.is_error) == ("{'error': 'Unsupported: web'}", True)


def test_each_episode_has_an_instance_and_streams_of_its_own():
    alone = handler_of("Dice")
    opened(alone, start_of(seed=5))
    rolls = [answer_to(alone, "roll").content for _ in range(3)]
    among = handler_of("Dice")
    begun = opened(among, start_of(seed=4), start_of(seed=5), start_of(seed=5, reset_seed=8))
    found = []
    for _ in range(3):
        answer_to(among, "roll", episode=0)
        found.append(answer_to(among, "roll", episode=1).content)
        answer_to(among, "roll", episode=2)
    assert found == rolls and len(set(rolls)) == 3
    # the generations of a problem begin alike, and go on differently
    assert begun[0].prompt == begun[1].prompt != begun[2].prompt
    assert answer_to(among, "roll", episode=0).content not in rolls


def test_a_seed_that_reset_names_is_given_unless_the_row_has_one():
    handler = handler_of("Dice")
    given = EpisodeStart(
        environment="", prompt=PROMPT, row={"seed": "own"}, reset_seed=2**40 + 3, seed=1
    )
    opened(handler, start_of(reset_seed=2**40 + 3), given)
    assert handler._episodes[0].environment.seed == 3
    assert handler._episodes[1].environment.seed == "own"


TERMS = {
    "near": FunctionTerm(name="near", function=f"{CODE}:near"),
    "looked_up": FunctionTerm(name="looked_up", function=f"{CODE}:looked_up"),
    "without": FunctionTerm(name="without", function=f"{CODE}:without"),
    "wrong": FunctionTerm(name="wrong", function=f"{CODE}:wrong"),
    "uses_up": FunctionTerm(name="uses_up", function=f"{CODE}:uses_up"),
    "after_all": FunctionTerm(name="after_all", function=f"{CODE}:after_all"),
    "Shop": GetReward(environment="Shop"),
    "AsyncShop": GetReward(environment="AsyncShop"),
}


def scores_of(handler, *names, episodes=(0, 1)):
    arguments = CallArguments(
        by_name={"completions": ["a"] * len(episodes)}, problem_ids=["p"] * len(episodes)
    )
    return handler.score(
        episodes=list(episodes), arguments=arguments, limits=dict.fromkeys(names, 5.0)
    )


def test_rewards_that_take_environments_are_called_with_them():
    factory = {"a": f"{CODE}:Shop", "b": f"{CODE}:AsyncShop"}
    handler = handler_of(factory, terms=TERMS)
    takes_them = {"near", "looked_up", "wrong", "uses_up", "after_all"}
    assert set(handler.describe().rewards) == takes_them
    opened(handler, start_of("a"), start_of("b"), start_of("a"))
    answer_to(handler, "add", amount=3)
    answer_to(handler, "add", episode=1, amount=5)
    found = scores_of(handler, "near", "looked_up", "Shop", "AsyncShop", episodes=(0, 1, 2))
    assert found.by_name == {
        "near": [-4, -2, -7],
        "looked_up": [3, 5, 0],
        "Shop": [3, None, 0],
        "AsyncShop": [None, -5, None],
    }
    assert found.metrics == {"totals": 8.0} and not found.failures
    assert scores_of(handler, "Shop", episodes=(2,)).by_name == {"Shop": [0]}


def test_a_reward_that_fails_has_no_scores():
    handler = handler_of("Shop", terms=TERMS)
    opened(handler, start_of(), start_of())
    found = scores_of(handler, "near", "wrong")
    assert list(found.by_name) == ["near"]
    assert "1 score for 2 completions" in found.failures["wrong"]


@pytest.mark.parametrize("kind", ["Drawing", "DrawingLater"])
def test_what_an_own_reward_draws_does_not_depend_on_the_episodes_beside_it(kind):
    def drawn(*episodes):
        handler = handler_of(kind)
        opened(handler, *(start_of(seed=seed) for seed in (4, 5, 6)))
        return scores_of(handler, kind, episodes=episodes).by_name[kind]

    together = drawn(0, 1, 2)
    assert len(set(together)) == 3
    assert drawn(1, 2) == together[1:]
    assert [drawn(each)[0] for each in range(3)] == together


def test_each_episode_has_its_columns_to_itself_and_async_rewards_come_last_as_in_trl():
    handler = handler_of("Shop", terms=TERMS)
    opened(handler, start_of(), start_of())
    by_name = {"completions": ["a", "a"], "numbers": [[1, 2, 3]] * 2}
    arguments = CallArguments(by_name=by_name, problem_ids=["p", "p"])
    limits = {"after_all": 5.0, "uses_up": 5.0}
    found = handler.score(episodes=[0, 1], arguments=arguments, limits=limits)
    assert dict(found.by_name) == {"after_all": [2.0, 2.0], "uses_up": [3.0, 3.0]}
    assert list(found.by_name) == ["after_all", "uses_up"]


def test_tools_and_rewards_of_an_environment_share_an_event_loop():
    handler = handler_of("AsyncShop", terms=TERMS)
    users_code.Shop.loops.clear()
    opened(handler)
    answer_to(handler, "slow", amount=1)
    scores_of(handler, "AsyncShop", episodes=(0,))
    first, second = users_code.Shop.loops
    assert first is second


@pytest.mark.parametrize(
    ("factory", "tools", "told"),
    [
        ("WithoutReset", [], r"environment\.factory: WithoutReset has no method `reset`"),
        ("Failing", [], r"environment\.factory: Failing\(\) raises OSError: no board"),
        ("Untyped", [], "the tool 'add' .*amount"),
        ("Undescribed", [], "the tool 'add' .*amount.*`Args:`"),
        ("Shop", ["add"], "two tools are called 'add'"),
        ("Shp", [], r"environment\.factory = .*did you mean Shop"),
        ("Shop", ["serch"], r"environment\.tools = .*did you mean search"),
    ],
)
def test_what_cannot_be_offered_to_a_model_is_refused_by_its_name(factory, tools, told):
    with pytest.raises(ConfigError, match=told):
        handler_of(factory, tools=tools).describe()


def test_a_public_close_is_a_tool_as_in_trl_and_said_to_be_one(caplog):
    described = handler_of("Closing").describe().environments[""]
    assert names_of(described.tools) == ["close"]
    assert "`close` of Closing is a tool" in caplog.text


@pytest.mark.parametrize(
    "how",
    [
        "raise ConnectionError('gone')",
        "raise RuntimeError('no answer') from ConnectionError('gone')",
        "raise ExceptionGroup('all', [ValueError('a'), ConnectionError('gone')])",
        "import urllib.error; raise urllib.error.URLError('refused')",
        "import socket; raise socket.gaierror('no such host')",
    ],
)
def test_an_outage_is_known_however_it_is_wrapped(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asks.py").write_text(
        'def ask(word: str) -> str:\n    """Ask.\n\n    Args:\n        word: It.\n    """\n'
        f"    {how}\n"
    )
    handler = EnvironmentHandler(environment=EnvironmentConfig(tools=("asks.py:ask",)), terms={})
    prompt = [{"role": "user", "content": "Ask."}]
    start = EpisodeStart(environment=None, prompt=prompt, row={}, reset_seed=1, seed=1)
    handler.open(start=start)
    (answer,) = handler.call(
        episode=0, calls=[ToolCall(name="ask", arguments={"word": "a"}, call_id="a/0/1/0")]
    )
    assert answer.outage is not None


def test_what_a_module_draws_while_it_is_imported_is_the_same_in_every_process(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code = 'import random\nDRAWN = random.random()\ndef ask() -> str:\n    """Ask."""\n'
    drawn = set()
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(code + "    return str(DRAWN)\n")
        config = EnvironmentConfig(tools=(f"{name}.py:ask",))
        handler = EnvironmentHandler(environment=config, terms={})
        start = EpisodeStart(environment=None, prompt=[], row={}, reset_seed=1, seed=1)
        handler.open(start=start)
        call = ToolCall(name="ask", arguments={}, call_id="a/0/1/0")
        drawn.add(handler.call(episode=0, calls=[call])[0].content)
    assert len(drawn) == 1


def reply_of(handler, text):
    said = ToolCall(name="_reply", arguments={"text": text}, call_id="said", is_reply=True)
    (answer,) = handler.call(episode=0, calls=[said])
    return answer


@pytest.mark.parametrize(("kind", "content"), [("Talking", "a? 0."), ("TalkingLater", "aa")])
def test_a_message_that_calls_nothing_has_a_reply(kind, content):
    handler = handler_of(kind)
    assert handler.describe().environments[""].replies
    assert "_reply" not in names_of(handler.describe().environments[""].tools)
    opened(handler)
    assert reply_of(handler, "a").content.startswith(content)


def test_a_model_cannot_call_the_method():
    handler = handler_of("Talking")
    opened(handler)
    assert answer_to(handler, "_reply", text="a").content == "{'error': 'Tool _reply not found.'}"


def test_what_goes_wrong_in_a_reply_is_never_told_to_the_model():
    handler = handler_of("Talking")
    opened(handler)
    assert reply_of(handler, "end").content is None
    wrong, down = reply_of(handler, "number"), reply_of(handler, "down")
    assert wrong.is_error and "returned int" in wrong.content
    assert "nobody there" in down.outage and down.content == ""
