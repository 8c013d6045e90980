"""Exports: a job in the formats of other tools."""
