"""What lies between a shard's problems and its completions: `config.rollout.EPISODES` lists it."""
