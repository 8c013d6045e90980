"""Hostile programs that run instead of torchrun, which a supervisor must handle."""
