"""Tests that take a minute or more each, with pytest: kills all over, servers away, Modal under
fire."""
