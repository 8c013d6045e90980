"""Optimizer: its learning rate and its memory, from a recipe alone. No torch."""
