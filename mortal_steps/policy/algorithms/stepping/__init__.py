"""TRL's trainers that learn from scored completions, taken one train step at a time.

options        from `[training]` to TRL's own configuration
loop           TRL's loop turned inside out: one optimizer update at a time
trainers       TRL's trainers with that loop, on recorded batches
stepper        one train step at a time
state          what lies between two train steps: copied, saved, compared, restored
digests        digests of the weights and of the optimizer's state
scoring        log-probabilities, as an engine computes them with rounded weights
dry_run        one step with the run's options, on a model of next to no size
lora           `[training.lora]` and `[model.quantization]`, as PEFT and transformers take them
lora_targets   model_options
               what fits the model that is trained, asked before the first step
reproducible   seeds, random streams, kernels that compute the same bits again
"""
