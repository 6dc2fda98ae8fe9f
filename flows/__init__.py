"""Prefect flows: order, branching and names. They hold no computation.

grpo_train                    a run: begin it or continue it, and train it to its end
grpo_resume                   continue a run by its id
promote                       the gate before a model is put to use
recipe                        stages that begin with what other stages have produced
make_stage                    a stage that is no run

training                      the training loop: which stage follows which
saves                         checkpoints, written beside training
ending                        whether a run ends before its last step
stop                          requests to stop in order

recipe_driver                 the loop of a recipe: which stage begins when
stage_work, stage_process     one stage of it, in a process of its own
gate_stage                    a gate of it
recipe_ending                 what it has reached, or ends with if stages have failed

settings, project_folder      a flow run's configuration and folder
signals                       signals that stop a run in order
deployed, terminal            flow runs of deployments: how they end, wait and are skipped
"""
