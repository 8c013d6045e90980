"""Checks of every way between two nodes, in both directions."""
