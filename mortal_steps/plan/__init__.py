"""The plan of a run: its configuration, and what the program works with.

run_config       the whole configuration, which a user writes and a run records
across_sections  what its sections ask of each other
loader           reads it: a TOML file, flags, overrides, and errors that a user can act on
hints            what to write instead
reference        every key, as TOML and as a page
parts            the configuration read into the parts that workers, their place and stages are
                 given
"""
