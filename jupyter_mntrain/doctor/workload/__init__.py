"""Checks of what a job needs on each of its nodes."""
