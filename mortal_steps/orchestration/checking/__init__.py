"""What can be found out about a configuration before anything is started.

preflight                 every check, in turn
checks                    those of single settings
problems                  what a run learns from is read
data_lines                what a dry run says of it
reward_calls, harnesses   rewards and harnesses are called once
rows, teachers            what learning from rows and from teachers needs
sampled_alike             whether training computes what was sampled
resolve_defaults          defaults that depend on the machine and the model
forecast, forecast_lines  which GPU each worker takes, and the memory
step_time                 how long a step takes on a CPU
room_on_gpus              whether it fits, and the nearest settings that do
own_rewards               rewards that environments bring themselves
"""
