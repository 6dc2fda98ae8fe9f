"""What runs in a box, with the standard library alone: a server, and a process per program."""
