"""The actor: it trains the policy, saves its state and publishes its weights.

What a worker process calls:
    actor                        idempotent train steps and checkpoints: `Actor`
    algorithms                   TRL's trainers, taken one step at a time

The state, and how it comes back after a kill:
    memory, held                 the one state that an actor has in memory
    journal                      which batch each step trained on, and its result
    checkpoints, saving          complete states on disk, written beside training
    recovery, restore            where a run can continue; reading a state back
    rollout_files                deleting rollouts that nothing needs any more
    read_ahead, trainable        reading a batch, and checking it
    digests, rounding            comparing states; scoring with rounded weights

Weights for rollout workers:
    publishing, weights          which versions are published, kept and deleted
    sharing                      the same through shared memory (`weight_sync = "direct"`)

Models:
    base_model                   the starting model: as named, built or warm-started
    new_model, warm_start        building one; supervised steps before training
    export, tensor_file          writing a model's files
    exporting                    a checkpoint as a model folder
    adapter_base, tokenizer      an adapter's base; the tokenizer
    prompt_lengths               do the prompts fit the model?
    starting_weights             can a folder's model be trained?
    transformers_models          importing transformers faster
"""
