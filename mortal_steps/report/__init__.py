"""What a user sees of a run: timing table, progress, reward curve, summary."""
