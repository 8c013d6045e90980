"""Verbs of large files on nodes."""
