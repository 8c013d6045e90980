"""Reads from a script's source what it needs to run. Pure; runs nothing."""
