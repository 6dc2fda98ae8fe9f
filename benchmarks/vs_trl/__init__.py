"""The same training with stock TRL and with MORTAL, side by side."""
