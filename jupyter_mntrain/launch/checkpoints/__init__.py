"""Checkpoints of runs: where they are on a node, and what is in their directory. No torch."""
