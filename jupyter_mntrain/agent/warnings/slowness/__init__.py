"""Slowness: measures how fast a part is, how fast it was, and what presses on it."""
