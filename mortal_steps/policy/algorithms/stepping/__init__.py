"""TRL's trainers that learn from scored completions, taken one train step at a time.

options              from `[training]` to TRL's own configuration
loop                 TRL's loop turned inside out: one optimizer update at a time
stepper   recorded   one train step at a time, on a recorded batch
state                what lies between two train steps: saved, compared, restored
snapshot             a copy of it, to be saved while training goes on
digests              digests of the weights and of the optimizer's state
scoring   rounding   log-probabilities, as an engine computes them with rounded weights
rehearsal            one step with the run's options, on a model of next to no size
lora_targets   model_options   without_weights   router_loss
                     what fits the model that is trained, asked before the first step
divergence           whether a step left weights that can be trained further
padding              whether padded rows train as the same rows without padding
place                where it trains, and in which numbers
attention            attention on a GPU that computes the same bits again
randomness           its seeds, its random streams, kernels that repeat themselves
attention            those of attention, on a GPU

What single trainers have of their own stands in their folders (grpo, rloo).
"""
