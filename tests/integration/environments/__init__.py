"""Models that call tools, with real processes of environments."""
