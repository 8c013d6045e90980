"""Recorders for other people's training loops; each imports its own library, and torch."""
