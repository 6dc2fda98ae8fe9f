"""What training leaves in the run directory besides its journal. Needs no torch.

checkpoints         complete states of the actor: `checkpoints/step-<n>/`
weights             published versions of the policy: `weights/v<n>/`
recovery            from which step a run can continue, given these and the journal
rollout_files       deleting rollouts that nothing needs any more
"""
