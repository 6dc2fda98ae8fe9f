"""Prefect flows: order, branching and names. They hold no computation.

grpo_train                    a run: begin it or continue it, and train it to its end
grpo_resume                   continue a run by its id
promote                       the gate before a model is put to use

training                      the training loop: which stage follows which
rollouts                      sampling and scoring, up to `staleness` steps ahead
saves                         checkpoints, written beside training
stop                          requests to stop in order

settings, project_folder      a flow run's configuration and folder
deployed, terminal            flow runs of deployments: how they end, wait and are skipped
"""
