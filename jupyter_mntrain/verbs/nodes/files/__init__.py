"""Verbs for large files on nodes."""
