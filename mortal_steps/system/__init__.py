"""The operating system: processes, their temporary files, their signals, their messages."""
