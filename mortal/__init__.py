"""MORTAL's public face: the configuration, the flow and the `mortal` command."""
