"""Hostile programs that run instead of torchrun, which a keeper must handle."""
