"""Scenarios on a control plane of Modal."""
