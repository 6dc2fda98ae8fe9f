"""The table of selections: names in `selection.type` -> which problems a step samples and keeps."""

from mortal_steps.extensions import Registry, simple

ALL = "all"
"""The next problems of the dataset, and all of their groups."""
SELECTIONS = Registry(
    "selection.type",
    simple(
        {
            ALL: "mortal_steps.selection.everything:Everything",
            "curriculum": "mortal_steps.selection.curriculum:Curriculum",
            "screen": "mortal_steps.selection.screen:Screen",
            "dynamic": "mortal_steps.selection.dynamic:Dynamic",
        }
    ),
)
"""Each is a subclass of `SelectionConfig` with a method `rounds(draw)`, which is a `Rounds`."""
