"""The actor: it trains the policy, saves its state and publishes its weights.

The worker and its parts:
    actor                   idempotent train steps and checkpoints: `Actor`
    state_manager           the one state that an actor has in memory
    saving                  checkpoints, written beside the next train steps
    publishing              weights for rollout workers

What a step trains on:
    journal                 which batch each step trained on, and its result. Users' batch sources
                            import it by this name: see docs/extending.md
    batches                 the kinds of batches that algorithms train on
    epochs                  the order of each epoch of rows, and the loss on held-out ones
    trainable               can a completion be trained on?

Folders:
    algorithms              TRL's trainers, taken one step at a time
    on_disk                 checkpoints and weights in the run directory; where a run can continue
    starting_model          the model that a run begins with: built, warm-started, checked
    model_files             writing and reading a model's files
    ranks                   several processes that train one model together

plan                    what the actor and its algorithm are given of the configuration
checks, chat_settings   what is wrong with a run before it begins; how its chats are rendered
library_warnings        what TRL, transformers and PEFT warn of
private                 names of TRL, transformers and accelerate that may change in any release
cpu_rates               how fast this machine multiplies matrices
gpu                     why torch may compute on the CPU although there is a GPU
"""
