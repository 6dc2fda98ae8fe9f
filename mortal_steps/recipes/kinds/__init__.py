"""The kinds of stages, a file each; `STAGES` (recipes/table.py) has their names."""
