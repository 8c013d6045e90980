"""Checkpoints of runs: their place on a node, and their directory. Imports no torch."""
