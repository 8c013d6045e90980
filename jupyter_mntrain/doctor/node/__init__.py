"""Checks of each node by itself, and of nodes beside one another."""
