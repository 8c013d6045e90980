"""Verbs that end a job or save a checkpoint."""
