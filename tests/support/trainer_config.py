"""The configuration that `MortalTrainer` makes of its parameters."""

from mortal import MortalTrainer

ROWS = [{"prompt": "1 + 1 =", "answer": "2"}, {"prompt": "1 + 2 =", "answer": "3"}]
NEW = {"model.new.max_position_embeddings": 64}


def config_of(reward="sandbox", *, config=NEW, **given):
    given.setdefault("train_dataset", ROWS)
    return MortalTrainer(reward_funcs=reward, config=config, **given).config


def term_of(reward):
    (term,) = config_of(reward).rewards.terms
    return term


def scaled(by):
    return lambda completions, **kwargs: [by] * len(completions)


def value_at(config, key):
    at = config
    for part in key.split("."):
        at = at[part] if isinstance(at, dict) else getattr(at, part)
    return at
