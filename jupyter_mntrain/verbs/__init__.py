"""Verbs behind both the magic and the command line."""
