"""The model that a run begins with.

base_model          as named, built or warm-started; kept in a cache
new_model           building a small model (`[model.new]`)
warm_start          supervised steps before reinforcement (`[model.warm_start]`)
starting_weights    can a folder's model be trained?
prompt_lengths      do the prompts fit the model?
prompt_tokens       what is unusual about their tokens?
"""
